"""Lists in pages, each with a cursor for the next one.

A cursor is the position where a page ended, as opaque text. It contains nothing that the client hasn't
seen, and is checked like any other input: a forged one is refused, or begins elsewhere in the same list,
which the client may read anyway. Lists with filters pass them as `question`: a cursor that is used with
other filters is refused.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Generic, TypeAlias, TypeVar

import msgspec
from litestar.params import QueryParameter

from rota.server.problems import Problem

T = TypeVar("T")
K = TypeVar("K")

MOST = 500
_LONGEST = 500
_DIGEST = 6  # bytes

Limit: TypeAlias = Annotated[
    int, QueryParameter(ge=1, le=MOST, description="The maximum number of items on this page")
]
Cursor: TypeAlias = Annotated[
    str | None,
    QueryParameter(
        max_length=_LONGEST, description="`next` of the previous page (default: the first page)"
    ),
]


class Page(msgspec.Struct, Generic[T]):
    """`next` is null on the last page."""

    items: list[T]
    next: str | None


def make_cursor(position: Any, question: Any = None) -> str:
    packed = _digest(question) + msgspec.msgpack.encode(position)
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()


def read_cursor(cursor: str | None, kind: type[K], question: Any = None) -> K | None:
    """Return the position, as the type it was made of (``UUID``, ``tuple[datetime, UUID]``)."""
    if cursor is None:
        return None
    try:
        packed = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        if packed[:_DIGEST] != _digest(question):
            raise _refused(
                "this cursor belongs to a list with other filters: start without a cursor"
            )
        return msgspec.msgpack.decode(packed[_DIGEST:], type=kind)
    except (binascii.Error, msgspec.MsgspecError, ValueError, OverflowError):
        raise _refused("invalid cursor: use `next` as it was returned") from None


def _digest(question: Any) -> bytes:
    return hashlib.blake2b(msgspec.json.encode(question), digest_size=_DIGEST).digest()


def _refused(detail: str) -> Problem:
    return Problem(400, "bad-cursor", detail, fields={"cursor": "can't be used here"})


def make_page(
    found: Sequence[T], limit: int, position: Callable[[T], Any], question: Any = None
) -> Page[T]:
    """Make a page of `limit + 1` items: one more than fits means that there is a next page."""
    items = list(found[:limit])
    more = len(found) > limit
    return Page(items, make_cursor(position(items[-1]), question) if more and items else None)
