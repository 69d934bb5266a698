"""The HTTP protocol of uvicorn, with limits of time, size and connections.

uvicorn limits the memory of a body, and ends idle connections. But it waits without limit for the
headers of a request, for the rest of a body that is no longer read, and for a client that doesn't read
its answer; and it accepts headers of any size. All of these have limits here.

Idle clients can't keep others out: each address gets only a part of the connections, a new connection
replaces the one that has been idle for longest when there are too many, and probes are answered even
when the server is full.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

_MOST_HEADER_BYTES = 65_536
_HEADER_SECONDS = 10.0  # for the first request's headers; fewer with a shorter request_timeout
_SHORT_LINGER = 0.2  # for a connection that is refused
_PROBES = (b"/healthz", b"/readyz")
_LINGER = 5.0  # seconds for a client to read an answer that came before the end of its body


class OpenConnections:
    """The connections of one server, by address, and those that are idle."""

    def __init__(self, most: int, most_per_address: int, trusted_proxies: str) -> None:
        self._most = most
        self._most_per_address = most_per_address
        self._trusts_all = "*" in trusted_proxies
        self._trusted = _networks(trusted_proxies)
        self._by_address: Counter[str] = Counter()
        self._all = 0
        self._idle: dict[GuardedProtocol, None] = {}  # in the order in which they became idle

    def enter(self, address: str) -> bool:
        """Count a new connection, until it leaves; return False if it must be refused."""
        if self._by_address[address] >= self._most_per_address and not self._is_trusted(address):
            return False
        self._by_address[address] += 1
        self._all += 1
        if self._all >= self._most and self._idle:
            oldest = next(iter(self._idle))
            self.is_busy(oldest)
            oldest.transport.abort()
        return True

    def leave(self, protocol: GuardedProtocol, address: str) -> None:
        self.is_busy(protocol)
        self._all -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def is_idle(self, protocol: GuardedProtocol) -> None:
        self._idle.pop(protocol, None)
        self._idle[protocol] = None

    def is_busy(self, protocol: GuardedProtocol) -> None:
        self._idle.pop(protocol, None)

    def _is_trusted(self, address: str) -> bool:
        if self._trusts_all:
            return True
        try:
            judged = ip_address(address)
        except ValueError:  # a local socket has no address
            return not address
        return any(judged in network for network in self._trusted)


def _networks(entries: str) -> list[IPv4Network | IPv6Network]:
    found = []
    for entry in entries.split(","):
        with contextlib.suppress(ValueError):  # a name
            found.append(ip_network(entry.strip(), strict=False))
    return found


class GuardedProtocol(HttpToolsProtocol):
    request_timeout: ClassVar[float] = 30.0
    open_connections: ClassVar[OpenConnections] = OpenConnections(1_000, 250, "")

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._reading_headers = True
        self._header_bytes = 0
        self._refused = False  # what still arrives belongs to no request
        self._address: str | None = None  # while it is counted
        self._read_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        if self.open_connections.enter(address):
            self._address = address
            self.open_connections.is_idle(self)
            self._end_in(min(self.request_timeout, _HEADER_SECONDS))
        else:
            self.connections.discard(self)
            self._refuse(503)
            self._end_in(_SHORT_LINGER)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timers()
        if self._address is not None:
            self.open_connections.leave(self, self._address)
        super().connection_lost(exc)

    # -- reading

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        super().data_received(data)
        if self._reading_headers:
            self._header_bytes += len(data)
            if self._header_bytes > _MOST_HEADER_BYTES:
                self._refuse(431)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._reading_headers = True
        self._header_bytes = 0
        self._end_in(self.request_timeout)

    def on_headers_complete(self) -> None:
        self._reading_headers = False
        self._end_in(None)
        if len(self.url) + sum(len(n) + len(v) for n, v in self.headers) > _MOST_HEADER_BYTES:
            self._refuse(431)
            return
        self.open_connections.is_busy(self)
        limit = self.limit_concurrency
        if self.url.partition(b"?")[0] in _PROBES:
            self.limit_concurrency = None  # answered even when the server is full
        super().on_headers_complete()
        self.limit_concurrency = limit

    def on_response_complete(self) -> None:
        unread = self.cycle.response_complete and self.cycle.more_body
        super().on_response_complete()
        if not self.pipeline:
            self.open_connections.is_idle(self)
        if unread:
            self._end_in(_LINGER)

    def on_message_complete(self) -> None:
        if self._refused:
            return
        if self.cycle.response_complete:
            self._end_in(None)
        super().on_message_complete()

    def on_body(self, body: bytes) -> None:
        if not self._refused:
            super().on_body(body)

    def _refuse(self, status: int) -> None:
        self._refused = True
        if self.transport.is_closing():
            return
        self.transport.write(
            STATUS_LINE[status] + b"content-length: 0\r\nconnection: close\r\n\r\n"
        )
        # A connection that is closed with unread data is reset before the client has read the answer.
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._end_in(_LINGER)

    def _end_in(self, seconds: float | None) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None
        if seconds is not None:
            self._read_timer = self.loop.call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        if self._reading_headers and self._header_bytes and not self._refused:
            self._refuse(408)
        else:
            self.transport.close()

    # -- writing

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self.loop.call_later(self.request_timeout, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _cancel_timers(self) -> None:
        self._end_in(None)
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
