"""Rota inside an ASGI application: FastAPI, Starlette, Litestar and others.

Protocol. `running` opens the app's connections for the length of its block, and closes them; with
`worker=True` a node runs in the same process and event loop, without signal handlers: the host's server
has its own, and ends the block when it stops. The node then drains as it does on SIGTERM.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from rota.app import App
from rota.node import ROLES, Node, Role


class Opens(Protocol):
    """Something that is open for the length of a block."""

    def running(self) -> AbstractAsyncContextManager[None]: ...


STATE = "rota"  # the name of the app in the state of requests


@contextlib.asynccontextmanager
async def running(
    app: App, *, worker: bool = False, migrate: bool = False, roles: Sequence[Role] = ROLES,
    queues: Sequence[str] | Mapping[str, int | None] = (), capabilities: Sequence[str] = (),
) -> AsyncIterator[App]:  # fmt: skip
    """Open the app, and with `worker` also run its jobs, for the length of the block.

    Args:
        app: your application's tasks.
        worker: run a node in this process. For small services: a handler that blocks the event loop
            blocks the requests, too.
        migrate: migrate the database's schema first.
        roles: of the node.
        queues: the queues that the node serves; see `rota.node.Node`.
        capabilities: what the node's jobs may need.
    """
    if migrate:
        await app.migrate()
    if worker:
        async with Node(app, roles, queues, capabilities).running():
            yield app
    else:
        async with app:
            yield app


def lifespan(
    app: App, *, mounted: Sequence[Opens] = (), **options: Any
) -> Callable[[Any], AbstractAsyncContextManager[dict[str, App]]]:
    """Return a lifespan for `FastAPI(lifespan=...)`, `Starlette(lifespan=...)` or
    `Litestar(lifespan=[...])`. Takes the options of `running`.

    `mounted`: dashboards (`rota.integrations.mount`) that are open as long. Requests of Starlette and
    FastAPI have the app as ``request.state.rota``.
    """

    @contextlib.asynccontextmanager
    async def opened(_: Any) -> AsyncIterator[dict[str, App]]:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(running(app, **options))
            for each in mounted:
                await stack.enter_async_context(each.running())
            yield {STATE: app}

    return opened
