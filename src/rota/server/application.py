"""Make the HTTP application of a `rota.App`: routes, authorization, limits, errors, OpenAPI."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from litestar import Litestar, Request, Response, get
from litestar.config.compression import CompressionConfig
from litestar.datastructures import State
from litestar.types import ControllerRouterHandler

from rota.app import App
from rota.runtime.ticker import Ticker
from rota.server.authorization import gate
from rota.server.context import ServerContext, ServerUpkeep
from rota.server.dashboard.pages import prepare, problem_page
from rota.server.frame import Frame
from rota.server.openapi import make_document
from rota.server.policy import PUBLIC, route_table
from rota.server.problems import describe, to_response
from rota.server.requests import DEPENDENCIES, RotaRequest
from rota.server.routes import all_routes


def make_server(app: App, routes: Sequence[ControllerRouterHandler] | None = None) -> Litestar:
    """Return the ASGI application of the server. It opens its connections when it is started.

    Args:
        app: the application whose tasks, settings and database are used.
        routes: the routes to serve (default: all).
    """
    settings = app.settings
    limit = settings.max_body_bytes
    server = copy.copy(_all_routes(limit) if routes is None else _read_routes(routes, limit))

    @contextlib.asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        async with _keeping_failure(server), ServerContext.open(app) as context:
            server.state.context = context
            await asyncio.to_thread(prepare)
            upkeep = Ticker(ServerUpkeep(context))
            upkeep.start()
            try:
                yield
            finally:
                await upkeep.stop()
                await context.tokens.save_uses()

    server.state = State()
    server.opening = lifespan
    server.asgi_router = copy.copy(server.asgi_router)
    server.asgi_router.app = server  # it runs the lifespan of its app
    # Not a middleware, which would not see requests that match no route.
    server.asgi_handler = Frame(server.asgi_handler, settings.request_timeout)
    return server


class _Routed(Litestar):
    """The routes, without an app. `make_server` makes a copy for each app."""

    opening: Callable[[], AbstractAsyncContextManager[None]]

    def lifespan(self) -> AbstractAsyncContextManager[None]:  # type: ignore[override]
        return self.opening()


@functools.cache
def _all_routes(max_body_bytes: int) -> _Routed:
    """Return all routes, shared by the servers of a process: parsing their signatures is slow."""
    return _read_routes(all_routes(), max_body_bytes)


def _read_routes(routes: Sequence[ControllerRouterHandler], max_body_bytes: int) -> _Routed:
    @functools.cache
    def document() -> bytes:
        return make_document(routes, DEPENDENCIES, list(route_table(routed)))

    @get("/v1/openapi.json", policy=PUBLIC, include_in_schema=False)
    async def openapi() -> Response[bytes]:
        return Response(document(), media_type="application/json")

    routed = _Routed(
        [*routes, openapi],
        request_class=RotaRequest,
        middleware=[gate],
        dependencies=DEPENDENCIES,
        exception_handlers={Exception: _handle_error},
        request_max_body_size=max_body_bytes,
        compression_config=CompressionConfig(
            backend="gzip",
            minimum_size=1_000,
            gzip_compress_level=5,
            exclude_opt_key="uncompressed",
        ),
        openapi_config=None,
        logging_config=None,
        debug=False,
    )
    list(route_table(routed))  # raises for a route without a policy
    return routed


def _handle_error(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    """Answer an error: browsers get a page, programs problem+json."""
    problem = describe(request, error)
    return problem_page(request, problem) or to_response(request, problem)


@contextlib.asynccontextmanager
async def _keeping_failure(server: Litestar) -> AsyncIterator[None]:
    """Keep the error of a failed start: uvicorn only reports that the start failed."""
    try:
        yield
    except Exception as error:
        server.state.failure = error
        raise
