"""A door for Prometheus alone: GET /metrics on the loopback, for nodes that are no servers."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from rota.errors import ConfigError
from rota.metrics.exposition import Metrics

log = logging.getLogger("rota.metrics")

_HOST = "127.0.0.1"
_HEAD_BYTES = 8_192
_PATIENCE = 5.0
_MOST_AT_ONCE = 16


class MetricsPort:
    def __init__(self, metrics: Metrics, port: int) -> None:
        self._metrics = metrics
        self._wanted = port
        self._server: asyncio.Server | None = None
        self._open = 0

    @property
    def port(self) -> int:
        """Where it listens; 0 was any that is free."""
        assert self._server is not None
        number: int = self._server.sockets[0].getsockname()[1]
        return number

    async def start(self) -> None:
        try:
            self._server = await asyncio.start_server(
                self._serve, _HOST, self._wanted, limit=_HEAD_BYTES
            )
        except OSError as error:
            raise ConfigError(
                f"metrics_port {self._wanted} on {_HOST} can't be listened on: {error.strerror}"
            ) from None
        log.info("metrics are at http://%s:%d/metrics", _HOST, self.port)

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
        if rest.partition(" ")[0].partition("?")[0] != "/metrics":
            return _response("404 Not Found", b"it is at /metrics\n")
        if method != "GET":
            return _response("405 Method Not Allowed", b"GET it\n")
        accept = next((f[7:].strip() for f in fields if f.lower().startswith("accept:")), "")
        body, content_type = await self._metrics.render(accept)
        return _response("200 OK", body, content_type)


def _response(status: str, body: bytes, content_type: str = "text/plain; charset=utf-8") -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
