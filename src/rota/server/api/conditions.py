"""ETags, and requests that depend on them: If-None-Match, If-Match."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from rota.server.problems import Problem


def tag_of(value: Any) -> str:
    """Changes with anything that is shown of it."""
    digest = hashlib.blake2b(msgspec.json.encode(value), digest_size=12).hexdigest()
    return f'"{digest}"'


def matches(condition: str | None, tag: str) -> bool:
    """Whether a list of tags, or `*`, names this one. Weak ones (`W/`) are taken as the same."""
    if condition is None:
        return False
    named = [part.strip().removeprefix("W/") for part in condition.split(",")]
    return "*" in named or tag in named


def check_unchanged(condition: str | None, tag: str, what: str) -> None:
    """If-Match: only change what is still as the client saw it."""
    if condition is not None and not matches(condition, tag):
        raise Problem(
            412, "precondition-failed",
            f"{what} has changed since you read it: read it again, and decide again",
            headers={"ETag": tag},
        )  # fmt: skip
