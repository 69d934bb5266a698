"""Server-sent events: answers that go on, with a sign of life when there is nothing to tell.

A stream ends when the client goes, and when the server stops: the client's next request, with the id of
the last event it saw, goes to another server and misses nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from litestar.response import Stream

from rota.server.context import ServerContext

MEDIA_TYPE = "text/event-stream"

_SIGN_OF_LIFE = 15.0  # seconds; proxies close what is silent
_HELLO = b"retry: 1000\n\n"  # milliseconds until a client comes back
_encode = msgspec.json.Encoder().encode


def event_bytes(kind: str, id: str, data: Any) -> bytes:
    """`kind` and `id` are ours, and have no line in them; JSON has none either."""
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (id.encode(), kind.encode(), _encode(data))


def stream_of(context: ServerContext, events: AsyncIterator[bytes]) -> Stream:
    """The events as an answer. An empty one is nothing but a chance to look whether we should stop."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return Stream(_alive(context, events), media_type=MEDIA_TYPE, headers=headers)


async def _alive(context: ServerContext, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield _HELLO
    loop = asyncio.get_running_loop()
    said = loop.time()
    async for event in events:
        if context.stopping.is_set():
            return
        if event:
            said = loop.time()
            yield event
        elif loop.time() - said >= _SIGN_OF_LIFE:
            said = loop.time()
            yield b": still here\n\n"


async def pause(context: ServerContext, seconds: float) -> None:
    """Wait, but not when the server stops."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await context.stopping.wait()
