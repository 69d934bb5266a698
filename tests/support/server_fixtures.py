"""A live server for tests: on a random loopback port, with tokens for whoever is needed."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import pytest
from argon2 import PasswordHasher

from rota import App
from rota.operations.installation import Installation
from rota.server.serving import Server
from rota.store.changes import changing

# Made once: reading the system's certificates takes longer than most requests.
_TLS = ssl.create_default_context()


@pytest.fixture(scope="session", autouse=True)
def _quick_passwords() -> Iterator[None]:
    """Real ones take a core and 64 MB for a while, on purpose."""
    with pytest.MonkeyPatch.context() as patch:
        quick = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
        patch.setattr("rota.lib.passwords._hasher", quick)
        yield


class LiveServer:
    """`await live.client("viewer")` is an HTTP client with such a token.

    `live.app` is the app behind it: submit, look and change there, too.
    """

    def __init__(self, app: App, server: Server, stack: contextlib.AsyncExitStack) -> None:
        self.app = app
        self.server = server
        scheme = "https" if app.settings.tls_cert else "http"
        self.url = f"{scheme}://127.0.0.1:{server.port}"  # its own, whatever people call it by
        self._stack = stack

    @property
    def context(self) -> Any:
        """The server's own context, to move its clocks and look at its memory."""
        return self.server.asgi.state.context

    async def token(self, role: str = "admin", namespace: str = "default", **given: Any) -> str:
        """A new token. `namespace="*"` for all of them; also `scopes`, `expires_at`, `name`."""
        everywhere = namespace == "*"
        named = {"name": f"{role} of {namespace}", "everywhere": everywhere, **given}
        place = "default" if everywhere else namespace
        async with self._unrecorded() as installation:
            made = await installation.tokens.create(role=role, namespace=place, **named)
        return made.token

    async def link(self, **given: Any) -> str:
        """The secret of a new login link: `role` and `namespace`, or `user`."""
        async with self._unrecorded() as installation:
            return (await installation.sessions.create_link(**given)).secret

    @contextlib.asynccontextmanager
    async def _unrecorded(self) -> AsyncIterator[Installation]:
        """Prepare a test without rows in the audit log, which some tests count."""
        database = (await self.app.store()).database
        async with changing(database, "prepare", "test") as change:
            change.void()
            yield Installation(self.app.connector)

    async def client(
        self, role: str | None = "admin", namespace: str = "default", **given: Any
    ) -> httpx.AsyncClient:
        """With a token of that role; None: without any."""
        headers = {}
        if role is not None:
            headers["Authorization"] = f"Bearer {await self.token(role, namespace, **given)}"
        client = httpx.AsyncClient(
            base_url=self.url, headers=headers, timeout=60, trust_env=False, verify=_TLS
        )
        return await self._stack.enter_async_context(client)


@contextlib.asynccontextmanager
async def serving(app: App, routes: Any = None) -> AsyncIterator[LiveServer]:
    """A server of this app for as long as the block lasts. Two of them are two servers."""
    server = Server(app, routes=routes)
    await server.start()
    try:
        async with contextlib.AsyncExitStack() as stack:
            yield LiveServer(app, server, stack)
    finally:
        await server.stop()


@pytest.fixture
async def server(make_app: Callable[..., App]) -> AsyncIterator[LiveServer]:
    """A server on an empty schema."""
    async with serving(make_app(port=0)) as live:
        yield live
