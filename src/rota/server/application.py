"""Makes the HTTP application out of a `rota.App`: routes, gate, limits, errors, OpenAPI."""

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
from litestar.types import ControllerRouterHandler, Scope

from rota.app import App
from rota.runtime.ticker import Ticker
from rota.server.authorization import gate
from rota.server.context import ServerContext
from rota.server.dashboard.pages import prepare
from rota.server.dashboard.problems import problem_page
from rota.server.dependencies import DEPENDENCIES
from rota.server.frame import Frame
from rota.server.openapi import make_document
from rota.server.policy import PUBLIC, SAFE_METHODS, policy_of, route_table
from rota.server.problems import answer, what_to_tell
from rota.server.requests import RotaRequest
from rota.server.routes import all_routes
from rota.server.upkeep import ServerUpkeep


def make_server(app: App, routes: Sequence[ControllerRouterHandler] | None = None) -> Litestar:
    """The ASGI application of the server. It opens its connections when it is started.

    Args:
        app: whose tasks can be submitted, and whose settings and database are used.
        routes: what it answers; all there is, unless given.
    """
    settings = app.settings
    limit = settings.max_body_bytes
    server = copy.copy(_all_routes(limit) if routes is None else _read_routes(routes, limit))

    @contextlib.asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        async with _remembering_failure(server), ServerContext.open(app) as context:
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
    server.asgi_router.app = server  # whose lifespan it runs
    # Not as a middleware, which wouldn't see requests that no route is for.
    server.asgi_handler = Frame(server.asgi_handler, settings.request_timeout, write_changes)
    return server


class _Routed(Litestar):
    """The routes, without an app. A copy of it serves one app: see `make_server`."""

    opening: Callable[[], AbstractAsyncContextManager[None]]

    def lifespan(self) -> AbstractAsyncContextManager[None]:  # type: ignore[override]
        return self.opening()


@functools.cache
def _all_routes(max_body_bytes: int) -> _Routed:
    """Shared by the servers of a process: reading all signatures takes a quarter of a second."""
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
    list(route_table(routed))  # a route without a policy: better now than when it is used
    return routed


def _handle_error(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    """Told as a page to those who look, else as problem+json."""
    problem = what_to_tell(request, error)
    return problem_page(request, problem) or answer(request, problem)


@contextlib.asynccontextmanager
async def _remembering_failure(server: Litestar) -> AsyncIterator[None]:
    """Why it couldn't start: who serves the application only hears that it couldn't."""
    try:
        yield
    except Exception as error:
        server.state.failure = error
        raise


async def write_changes(scope: Scope, status: int) -> None:
    """A change that recorded nothing by itself is recorded before its answer goes out.

    Changes are recorded in their own transaction (see `rota.store.changes`); this is for a route
    that doesn't.
    """
    state: dict[str, Any] = scope["state"]
    if status < 400 and _is_unrecorded_change(scope, state):
        async with RotaRequest(scope).changing(scope["route_handler"].handler_name, scope["path"]):
            pass


def _is_unrecorded_change(scope: Scope, state: dict[str, Any]) -> bool:
    handler = scope.get("route_handler")
    policy = policy_of(handler) if handler is not None else None
    return (
        scope.get("method") not in SAFE_METHODS
        and policy is not None
        and policy.audited
        and "principal" in state
        and not state["acting"].recorded
    )
