"""ETags of what is read."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec


def tag_of(value: Any) -> str:
    """Return an ETag that changes with any field of the value."""
    digest = hashlib.blake2b(msgspec.json.encode(value), digest_size=12).hexdigest()
    return f'"{digest}"'
