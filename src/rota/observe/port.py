"""A small HTTP listener of a node: GET /metrics for Prometheus, /healthz and /readyz for probes.

It asks for no password, and listens on the loopback interface unless `metrics_host` names another.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

import msgspec

from rota.errors import ConfigError
from rota.observe.exposition import Metrics
from rota.observe.health import Probed, Report

log = logging.getLogger("rota.metrics")

_HEAD_BYTES = 8_192
_PATIENCE = 5.0
_MOST_AT_ONCE = 16
_PATHS = ("/metrics", "/healthz", "/readyz")


class MetricsPort:
    def __init__(self, metrics: Metrics, probed: Probed, host: str, port: int) -> None:
        self._metrics = metrics
        self._probed = probed
        self._host = host
        self._wanted = port
        self._server: asyncio.Server | None = None
        self._open = 0

    @property
    def port(self) -> int:
        """The port that it listens on; 0 in the settings chose any free one."""
        assert self._server is not None
        number: int = self._server.sockets[0].getsockname()[1]
        return number

    async def start(self) -> None:
        try:
            self._server = await asyncio.start_server(
                self._serve, self._host, self._wanted, limit=_HEAD_BYTES
            )
        except OSError as error:
            raise ConfigError(
                f"metrics_port {self._wanted} on metrics_host {self._host} can't be listened on: "
                f"{error.strerror or error}"
            ) from None
        shown = f"[{self._host}]" if ":" in self._host else self._host
        log.info("metrics are at http://%s:%d/metrics", shown, self.port)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            async with asyncio.timeout(_PATIENCE):
                writer.write(await self._answer(reader))
                await writer.drain()
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError, ValueError):
            pass  # a client that is slow, gone, or speaks something else
        finally:
            self._open -= 1
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        if self._open > _MOST_AT_ONCE:
            return _response("503 Service Unavailable", b"too many at once\n")
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.LimitOverrunError:
            return _response("431 Request Header Fields Too Large", b"too much\n")
        request, *fields = head.split("\r\n")
        method, _, rest = request.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if path not in _PATHS:
            return _response("404 Not Found", f"Known paths: {', '.join(_PATHS)}.\n".encode())
        if method != "GET":
            return _response("405 Method Not Allowed", b"Only GET is allowed.\n")
        if path == "/healthz":
            return _probe(self._probed.health())
        if path == "/readyz":
            return _probe(self._probed.readiness())
        accept = next((f[7:].strip() for f in fields if f.lower().startswith("accept:")), "")
        body, content_type = await self._metrics.render(accept)
        return _response("200 OK", body, content_type)


def _probe(report: Report) -> bytes:
    status = "200 OK" if report.ok else "503 Service Unavailable"
    return _response(status, msgspec.json.encode(report) + b"\n", "application/json")


def _response(status: str, body: bytes, content_type: str = "text/plain; charset=utf-8") -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
