"""Routes that tests add to a server, to see what it does with requests in general."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from litestar import get, post
from litestar.params import JSONBody
from litestar.response import ServerSentEvent

from rota.server import login
from rota.server.api import health
from rota.server.policy import OPERATOR, PUBLIC
from rota.server.requests import ContextDep, RotaRequest


@post("/v1/jobs/echo", policy=OPERATOR)
async def echo(data: JSONBody[Any]) -> Any:
    """What comes goes back."""
    return data


@post("/v1/anyone", policy=PUBLIC)
async def anyone(data: JSONBody[Any]) -> int:
    """For those without a token, too."""
    return len(data)


@post("/v1/jobs/count", policy=OPERATOR, request_max_body_size=None)
async def count(request: RotaRequest) -> int:
    """A body of any size, in pieces."""
    return sum([len(piece) async for piece in request.stream()])


@get("/v1/large", policy=PUBLIC)
async def large() -> bytes:
    """More than a socket's buffers hold."""
    return b"x" * 50_000_000


@get("/v1/broken", policy=PUBLIC)
async def broken() -> None:
    """Breaks, with something that nobody should read."""
    raise RuntimeError("the password is hunter2")


@get("/v1/endless", policy=PUBLIC, uncompressed=True)
async def endless(context: ContextDep) -> ServerSentEvent:
    """Until the server stops."""

    async def events() -> AsyncIterator[str]:
        yield "begun"
        await context.stopping.wait()

    return ServerSentEvent(events())


ROUTES = [echo, anyone, count, large, broken, endless, *health.ROUTES, *login.ROUTES]
