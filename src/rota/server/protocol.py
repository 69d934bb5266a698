"""HTTP as uvicorn speaks it, with an end to everyone's patience.

uvicorn bounds what a body may occupy, and ends idle connections. It waits for ever for the headers of a
request, for the rest of a body that nobody reads any more, and for a client that doesn't take its
answer; and it reads headers of any size. None of that here.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

_MOST_HEADER_BYTES = 65_536
_LINGER = 5.0  # seconds for a client to notice that it has been answered in the middle of its body


class GuardedProtocol(HttpToolsProtocol):
    request_timeout: ClassVar[float] = 30.0

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._reading_headers = True
        self._header_bytes = 0
        self._refused = False  # what still comes belongs to no request
        self._read_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._end_in(self.request_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timers()
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
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        unread = self.cycle.response_complete and self.cycle.more_body
        super().on_response_complete()
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
        # Closed with something unread, a line is cut before the client has read what we said.
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
