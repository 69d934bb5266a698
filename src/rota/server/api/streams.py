"""Server-sent events: answers that go on, with a sign of life when there is nothing to tell.

A stream ends when the client goes, and when the server stops: the client's next request, with the id of
the last event it saw, goes to another server and misses nothing. It also ends when who asked may no
longer read it: whether the token or session is still good, and its role enough, is judged again every
half second, by what requests are judged by, which is looked up anew every five seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from litestar.response import Stream

from rota.server.authorization import authorize_again
from rota.server.context import ServerContext
from rota.server.problems import Problem
from rota.server.requests import RotaRequest

MEDIA_TYPE = "text/event-stream"

_SIGN_OF_LIFE = 15.0  # seconds; proxies close what is silent
_CHECK_SECONDS = 0.5
_NO_LONGER = b": the token or session is no longer good for this\n\n"
_HELLO = b"retry: 1000\n\n"  # milliseconds until a client comes back
_encode = msgspec.json.Encoder().encode


def event_bytes(kind: str, id: str, data: Any) -> bytes:
    """`kind` and `id` are ours, and have no line in them; JSON has none either."""
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (id.encode(), kind.encode(), _encode(data))


def stream_of(request: RotaRequest, events: AsyncIterator[bytes]) -> Stream:
    """The events as an answer. An empty one is nothing but a chance to look whether we should stop."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return Stream(_alive(request, events), media_type=MEDIA_TYPE, headers=headers)


async def _alive(request: RotaRequest, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield _HELLO
    clock = asyncio.get_running_loop().time
    said = checked = clock()
    async for event in events:
        if request.context.stopping.is_set():
            return
        if clock() - checked >= _CHECK_SECONDS:
            if not await _still_may(request):
                yield _NO_LONGER
                return
            checked = clock()
        if event:
            said = clock()
            yield event
        elif clock() - said >= _SIGN_OF_LIFE:
            said = clock()
            yield b": still here\n\n"


async def _still_may(request: RotaRequest) -> bool:
    """By the same rules as when it was asked for, and for the same namespace."""
    try:
        await authorize_again(request)
    except Problem:
        return False
    return True


async def pause(context: ServerContext, seconds: float) -> None:
    """Wait, but not when the server stops."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await context.stopping.wait()
