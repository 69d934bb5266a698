"""The one module that draws random numbers and makes ids. Decisions take them as arguments."""

from __future__ import annotations

import base64
import hashlib
import os
import random
import struct
import threading
import time
from collections.abc import Callable
from uuid import UUID

_VERSION_7 = 0x7000
# Sets the variant bits of the byte they live in.
_VARIANT = bytes(byte & 0x3F | 0x80 for byte in range(256))
_LOW_BITS = 0x3FFF_FFFF_FFFF_FFFF
_VARIANT_BIT = 0x8000_0000_0000_0000
_PAIR = struct.Struct(">QQ")


def _uuid(body: bytes) -> UUID:
    return UUID(bytes=body)


# Who has loaded asyncpg puts its own in place: a uuid.UUID as well, and made ten times faster.
make_uuid: Callable[[bytes], UUID] = _uuid

_lock = threading.Lock()
_last = 0  # milliseconds << 12 | counter: rises with every id this process makes


def _unlock_after_fork() -> None:
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_unlock_after_fork)


def new_ids(count: int) -> list[UUID]:
    """UUIDv7s, rising within this process.

    The time inside is this node's own and orders ids for people and B-trees. Nothing is ever
    judged due, expired or dead by it.
    """
    global _last  # noqa: PLW0603 - the counter that makes them rise
    with _lock:
        first = max(_last + 1, (time.time_ns() // 1_000_000) << 12)
        _last = first + count - 1
    stamps = [(s >> 12) << 16 | _VERSION_7 | (s & 0xFFF) for s in range(first, first + count)]
    high = struct.pack(f">{count}Q", *stamps)
    low = bytearray(os.urandom(8 * count))
    low[::8] = low[::8].translate(_VARIANT)
    return [make_uuid(high[at : at + 8] + low[at : at + 8]) for at in range(0, 8 * count, 8)]


def new_id() -> UUID:
    """As `new_ids(1)`, without its lists."""
    global _last  # noqa: PLW0603
    with _lock:
        stamp = _last = max(_last + 1, (time.time_ns() // 1_000_000) << 12)
    low = int.from_bytes(os.urandom(8), "big") & _LOW_BITS | _VARIANT_BIT
    high = (stamp >> 12) << 16 | _VERSION_7 | (stamp & 0xFFF)
    return make_uuid(_PAIR.pack(high, low))


def unit() -> float:
    """A random number in [0, 1), for jitter."""
    return random.random()


def new_secret() -> str:
    """256 random bits as text that is safe in a URL and in a header."""
    return base64.urlsafe_b64encode(os.urandom(32)).rstrip(b"=").decode()


def hash_secret(secret: str) -> bytes:
    """Hash a secret of `new_secret`: it has 256 random bits, so that a fast hash is enough."""
    return hashlib.sha256(secret.encode()).digest()


def new_prefix() -> str:
    """A short public name that nobody else will draw: eight letters and digits."""
    return base64.b32encode(os.urandom(5)).decode().lower()


def new_nonce(size: int) -> bytes:
    """Random bytes, for cryptography."""
    return os.urandom(size)
