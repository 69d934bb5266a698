"""Serve the application with uvicorn on the event loop of the node: the node's role `server`.

Protocol. `start()` binds the address (but not a public one without TLS), opens the application and
returns when it answers. `stop()` accepts no more connections, ends streams, lets other requests finish
within the node's grace period, and closes. Then another server can use the address.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
import ssl
from collections.abc import Collection, Iterator, Sequence

import uvicorn
from litestar import Litestar
from litestar.types import ControllerRouterHandler

from rota.app import App
from rota.config import Settings
from rota.errors import ConfigError
from rota.lib import reloading
from rota.lib.reloading import Reloading
from rota.server.application import make_server
from rota.server.context import context_of
from rota.server.protocol import GuardedProtocol, OpenConnections

log = logging.getLogger("rota.server")


class Server:
    """The server of one node."""

    def __init__(
        self, app: App, *, any_port: bool = False,
        routes: Sequence[ControllerRouterHandler] | None = None,
    ) -> None:  # fmt: skip
        """`any_port`: use another port if it is taken. `routes`: the routes to serve (default: all)."""
        self._app = app
        self._routes = routes
        self._any_port = any_port
        self.asgi: Litestar | None = None
        self._uvicorn: _Uvicorn | None = None
        self._serving: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """The URL for clients."""
        settings = self._app.settings
        if settings.public_url:
            return settings.public_url.rstrip("/")
        host = settings.host if settings.host not in ("0.0.0.0", "::", "") else socket.gethostname()  # noqa: S104
        shown = f"[{host}]" if ":" in host else host
        return f"{'https' if settings.tls_cert else 'http'}://{shown}:{self.port}"

    @property
    def connections(self) -> Collection[object]:
        return self._uvicorn.server_state.connections if self._uvicorn else ()

    async def start(self) -> None:
        settings = self._app.settings
        check_binding(settings)
        check_certificate(settings)
        self.asgi = make_server(self._app, self._routes)
        listener = bind(settings, any_port=self._any_port)
        self.port = listener.getsockname()[1]
        try:
            self._uvicorn = _Uvicorn(_configuration(self.asgi, settings))
            self._serving = asyncio.create_task(self._uvicorn.serve([listener]))
            answering = asyncio.create_task(self._uvicorn.answering.wait())
            await asyncio.wait([self._serving, answering], return_when=asyncio.FIRST_COMPLETED)
            answering.cancel()
            if self._serving.done():
                raise self._failure()
        except BaseException:
            listener.close()
            raise
        if settings.tls_cert is not None:
            self._watching = asyncio.create_task(self._watch_certificate())
        log.info("serving on %s", self.url)

    async def _watch_certificate(self) -> None:
        """Use a certificate that replaces ours, for connections from then on."""
        settings = self._app.settings
        certificate, key = settings.tls_cert, settings.tls_key
        assert certificate is not None
        assert key is not None

        def load() -> None:
            check_certificate(
                settings
            )  # in a context of its own: ours keeps what it has if this fails
            assert self._uvicorn is not None
            assert self._uvicorn.config.ssl is not None
            self._uvicorn.config.ssl.load_cert_chain(certificate, key)

        files = Reloading([certificate, key], load)
        while True:
            await asyncio.sleep(reloading.LOOK_EVERY)
            files.get()

    def _failure(self) -> BaseException:
        """Return why the server didn't start."""
        assert self._serving is not None
        assert self.asgi is not None
        failed: BaseException | None = self.asgi.state.get("failure") or self._serving.exception()
        return failed or ConfigError("the server could not start; the log says why")

    async def stop(self) -> None:
        server, serving = self._uvicorn, self._serving
        if server is None or serving is None:
            return
        self._uvicorn = self._serving = None
        if self._watching is not None:
            self._watching.cancel()
        if self.asgi is not None and "context" in self.asgi.state:
            context_of(self.asgi).stopping.set()
        server.should_exit = True
        with contextlib.suppress(ConfigError):  # `start` has raised it
            await serving


class _Uvicorn(uvicorn.Server):
    """uvicorn without its signal handlers: the node has its own."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.answering = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except SystemExit:
            # uvicorn exits when the application doesn't start.
            raise ConfigError("the server could not start; the log says why") from None
        self.answering.set()


def _configuration(asgi: Litestar, settings: Settings) -> uvicorn.Config:
    class Protocol(GuardedProtocol):
        request_timeout = settings.request_timeout
        open_connections = OpenConnections(
            settings.max_connections, settings.max_connections_per_address, settings.trusted_proxies
        )

    return uvicorn.Config(
        asgi,
        http=Protocol,
        ws="none",
        loop="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=settings.trusted_proxies or None,
        limit_concurrency=settings.max_connections,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=max(1, int(settings.grace)),
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
    )


def check_binding(settings: Settings) -> None:
    """Refuse to listen on a public address without TLS."""
    if is_loopback(settings.host) or settings.tls_cert or settings.insecure_public:
        return
    raise ConfigError(
        f"the server would listen on {settings.host!r}, for everyone and without TLS: tokens and "
        "sessions could be read on the way. Give a certificate (ROTA_TLS_CERT and ROTA_TLS_KEY), or "
        "confirm that a proxy in front of it does TLS (--insecure-public), or listen on 127.0.0.1"
    )


def is_loopback(host: str) -> bool:
    """Return whether a host is only reachable from this machine: all its addresses, if it is a name."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host or None, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return bool(found) and all(ipaddress.ip_address(each[4][0]).is_loopback for each in found)


def bind(settings: Settings, *, any_port: bool) -> socket.socket:
    try:
        return _bind(settings.host, settings.port)
    except OSError as error:
        if any_port and settings.port:
            return _bind(settings.host, 0)
        raise ConfigError(
            f"the server can't listen on {settings.host} port {settings.port}: {error.strerror}. "
            "Choose another with ROTA_PORT or --port"
        ) from None


def _bind(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def check_certificate(settings: Settings) -> None:
    """Refuse a certificate that can't be used, before anything is started."""
    if settings.tls_cert is None:
        return
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            settings.tls_cert, settings.tls_key
        )
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"tls_cert {str(settings.tls_cert)!r} and tls_key {str(settings.tls_key)!r} can't be "
            f"used together: {error}"
        ) from None
