"""The dashboard and the REST API inside another ASGI application, behind its own log-in.

    dashboard = Dashboard(app, "/rota", authenticate=who)
    api = FastAPI(lifespan=lifespan(app, mounted=[dashboard]))
    api.mount("/rota", dashboard)

Protocol. `authenticate` is asked for each request that brings no token of Rota's. Whom it names has
the role that it names, for that request; changes also need the CSRF token of the page they come from,
and come from the same origin, as with Rota's own sessions. Rota's log-in is not served. Pages are
written for the root of a site: their links, and redirects, get the prefix on the way out.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from inspect import isawaitable
from typing import Any, Literal
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

import msgspec

from rota.app import App
from rota.core.access import Identity
from rota.core.roles import ANYWHERE, check_role_names, named
from rota.errors import ConfigError
from rota.lib.ids import new_secret
from rota.server.application import make_server
from rota.server.authorization import VISITOR, Visitor

RoleName = Literal["viewer", "operator", "admin"]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

_LINKS = re.compile(rb'(?P<name>\s(?:href|src|action|formaction|data-[a-z-]+))="/(?!/)')
_PREFIX = re.compile(r"(/[A-Za-z0-9_.~-]+)+")


class User(msgspec.Struct, frozen=True):
    """A user of the host application, with their roles.

    `role` holds in all namespaces, unless `namespaces` names the roles in some.
    """

    name: str
    role: RoleName = "viewer"
    namespaces: Mapping[str, RoleName] = {}

    def identity(self) -> Identity:
        """Return them as an identity of Rota's."""
        given = self.namespaces or {ANYWHERE: self.role}
        roles = {name: named(check_role_names(role, of_user=True)) for name, role in given.items()}
        return Identity(
            id=uuid5(NAMESPACE_URL, f"rota:{self.name}"), name=self.name, kind="session",
            memberships=roles,
        )  # fmt: skip


Authenticate = Callable[[Scope], User | Awaitable[User | None] | None]


class Dashboard:
    """An ASGI application that serves Rota's dashboard and REST API below a prefix.

    Args:
        app: whose jobs and schedules are shown.
        prefix: where it is mounted, such as ``/rota``.
        authenticate: returns who sends a request (its ASGI scope), or None for nobody. It may be a
            coroutine function.
        login_url: where browsers are sent that `authenticate` doesn't know; the address that they wanted
            is added as ``next``.
        logout_url: where the page's button to log out leads.
        secret: makes the CSRF tokens. By default it is made of the database's URL, so that all processes
            of a service agree.
    """

    def __init__(
        self, app: App, prefix: str, *, authenticate: Authenticate, login_url: str | None = None,
        logout_url: str | None = None, secret: str | None = None,
    ) -> None:  # fmt: skip
        if not _PREFIX.fullmatch(prefix):
            raise ConfigError(f"prefix must be a path such as /rota, not {prefix!r}")
        self._app = app
        self._prefix = prefix
        self._authenticate = authenticate
        self._login_url, self._logout_url = login_url, logout_url
        self._secret = secret or app.settings.database_url or new_secret()
        self._server: Any = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Open what it needs, for the length of the block. `lifespan(app, mounted=[...])` does it."""
        server = make_server(self._app)
        async with server.lifespan():
            self._server = server
            try:
                yield
            finally:
                self._server = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise ConfigError(f"the dashboard serves HTTP, not {scope['type']}")
        if self._server is None:
            raise ConfigError(
                "the dashboard is not open: make your application with "
                "lifespan=lifespan(app, mounted=[dashboard])"
            )
        path = _below(self._prefix, scope)
        if (
            path is None
            or path.startswith("/login")
            or (path == "/logout" and not self._logout_url)
        ):
            await _answer(send, 404)
            return
        if path == "/logout":
            await _answer(send, 303, self._logout_url)
            return
        by_token = _has_token(scope)
        inner = _inner(scope, path, by_token)
        if not by_token:
            user = self._authenticate(scope)
            if isawaitable(user):
                user = await user
            if user is None:
                await self._refuse(scope, send)
                return
            inner[VISITOR] = Visitor(user.identity(), self._session_secret(user))
        await self._server(inner, receive, _prefixed(send, self._prefix))

    def _session_secret(self, user: User) -> str:
        return hmac.new(self._secret.encode(), user.name.encode(), hashlib.sha256).hexdigest()

    async def _refuse(self, scope: Scope, send: Send) -> None:
        asks_for_a_page = b"text/html" in dict(scope["headers"]).get(b"accept", b"")
        if self._login_url is None or not asks_for_a_page:
            await _answer(send, 401)
            return
        here = self._prefix + (_below(self._prefix, scope) or "/")
        mark = "&" if "?" in self._login_url else "?"
        await _answer(send, 303, f"{self._login_url}{mark}next={quote(here, safe='')}")


def _below(prefix: str, scope: Scope) -> str | None:
    """Return the path below the prefix. Frameworks differ in whether they have cut it off."""
    path: str = scope["path"]
    if path == prefix or path.startswith(f"{prefix}/"):
        path = path[len(prefix) :]
    elif not str(scope.get("root_path", "")).endswith(prefix) and "litestar_app" not in scope:
        return None
    return path or "/"


def _inner(scope: Scope, path: str, by_token: bool) -> Scope:
    """Return the scope of the request as the server sees it, without what the host has put there."""
    kept = ("type", "asgi", "http_version", "method", "scheme", "query_string", "client", "server")
    # Uncompressed: links have to be found in it. The host may compress what it sends. What authenticates
    # somebody to the host is not for Rota.
    dropped = {b"accept-encoding"} if by_token else {b"accept-encoding", b"authorization"}
    headers = [pair for pair in scope["headers"] if pair[0].lower() not in dropped]
    return {
        **{name: scope[name] for name in kept if name in scope}, "headers": headers, "path": path,
        "raw_path": quote(path).encode(), "root_path": "", "state": {}, "extensions": {},
    }  # fmt: skip


def _has_token(scope: Scope) -> bool:
    given = dict(scope["headers"]).get(b"authorization", b"")
    return bool(given[:12].lower() == b"bearer rota_")


def _prefixed(send: Send, prefix: str) -> Send:
    """Add the prefix to redirects and to the links of pages. A page is held back until it is whole."""
    start: Any = None
    page = bytearray()

    async def sending(message: Any) -> None:
        nonlocal start
        if message["type"] == "http.response.start":
            message = {
                **message,
                "headers": [_redirect(pair, prefix) for pair in message["headers"]],
            }
            kind = {name.lower(): value for name, value in message["headers"]}.get(
                b"content-type", b""
            )
            if kind.startswith(b"text/html"):
                start = message
                return
        elif start is not None and message["type"] == "http.response.body":
            page.extend(message.get("body", b""))
            if message.get("more_body", False):
                return
            body = _LINKS.sub(rb'\g<name>="' + prefix.encode() + b"/", bytes(page))
            headers = [pair for pair in start["headers"] if pair[0].lower() != b"content-length"]
            start["headers"] = [*headers, (b"content-length", str(len(body)).encode())]
            await send(start)
            message = {"type": "http.response.body", "body": body}
        await send(message)

    return sending


def _redirect(pair: tuple[bytes, bytes], prefix: str) -> tuple[bytes, bytes]:
    name, value = pair
    if name.lower() == b"location" and value.startswith(b"/") and not value.startswith(b"//"):
        return name, prefix.encode() + value
    return pair


async def _answer(send: Send, status: int, location: str | None = None) -> None:
    headers = [(b"content-length", b"0"), (b"cache-control", b"no-store")]
    if location is not None:
        headers.append((b"location", location.encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
