"""As much of PostgreSQL's protocol as it takes to tell a client a lie."""

from __future__ import annotations

from collections.abc import Iterator

_IDLE = b"Z\x00\x00\x00\x05I"
# Not part of an answer: notices, notifications, changed settings.
_ASIDES = (b"N", b"A", b"S")


def messages(data: bytes) -> Iterator[bytes]:
    """Those that are whole, from the beginning; a type's byte comes first."""
    place = 0
    while place + 5 <= len(data):
        end = place + 1 + int.from_bytes(data[place + 1 : place + 5], "big")
        if end > len(data) or end < place + 5:
            return
        yield data[place:end]
        place = end


def executes(data: bytes) -> bool:
    """Whether the client asks for a statement to be executed, or for a commit. Not for a rollback, and
    not for what drivers ask to clean a session up: those can't fail."""
    for message in messages(data):
        if message[:1] == b"E":
            return True
        if message[:1] == b"Q" and message[5:].lstrip()[:6].upper() == b"COMMIT":
            return True
    return False


def is_one_answer(data: bytes) -> bool:
    """And the end of one, after which no transaction is open."""
    return data.endswith(_IDLE) and sum(m[:1] == b"Z" for m in messages(data)) == 1


def with_error(answer: bytes, sqlstate: str) -> bytes:
    """The same answer, but that it says that the statement has failed."""
    asides = b"".join(m for m in messages(answer) if m[:1] in _ASIDES)
    return asides + error("ERROR", sqlstate) + _IDLE


def error(severity: str, sqlstate: str) -> bytes:
    fields = {"S": severity, "V": severity, "C": sqlstate, "M": "the nemesis wants it so"}
    body = b"".join(f"{name}{value}".encode() + b"\0" for name, value in fields.items()) + b"\0"
    return b"E" + (len(body) + 4).to_bytes(4, "big") + body


def begins_login(data: bytes) -> bool:
    """Whether the server lets a client in, or asks for its password."""
    return data[:1] == b"R"
