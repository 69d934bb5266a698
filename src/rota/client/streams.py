"""Server-sent events, continued after a broken connection. No I/O.

A connection opens `request()`, passes the received bytes to `feed`, and gives out what that returns,
until the stream `has_ended`. When the connection breaks (the server stops, the network fails, there is
no data for three keep-alive intervals) it opens the stream again after `reconnect_delay`, with the id of
the last event that was *complete*: a partial event is dropped, and sent again. So no event is missed and
none comes twice. It gives up when no server could be reached for `timeout` seconds.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from rota.client.exchanges import Backoff, is_temporary, unavailable
from rota.client.problems import error_from
from rota.client.transport import NoResponse, Request, Response

T = TypeVar("T")

CLOSED = NoResponse("the server closed the stream", sent=True)


class ServerEvent(NamedTuple):
    kind: str
    data: bytes


class Parser:
    """Parses pieces of an event stream."""

    def __init__(self, last_id: str) -> None:
        self.last_id = last_id
        self._rest = b""
        self._id = last_id
        self._kind = ""
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> list[ServerEvent]:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        return [event for line in lines if (event := self._line(line.removesuffix(b"\r")))]

    def _line(self, line: bytes) -> ServerEvent | None:
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match field:
            case b"id":
                self._id = value.decode()
            case b"event":
                self._kind = value.decode()
            case b"data":
                self._data.append(value)
        return None

    def _dispatch(self) -> ServerEvent | None:
        """End an event. An id without data is a position to continue from, and no event."""
        self.last_id = self._id
        data, kind = self._data, self._kind
        self._data, self._kind = [], ""
        return ServerEvent(kind, b"\n".join(data)) if data else None


class Stream(Generic[T]):
    """A stream of events of one type, over any number of connections. An event `until` ends it."""

    def __init__(
        self, path: str, query: Mapping[str, Any], kind: type[T], until: str | None = None
    ) -> None:
        self._path = path
        self._query = query
        self._kind = kind
        self._until = until
        self._parser = Parser("")
        self._backoff = Backoff()
        self._alive_at: float | None = None  # when data came last, or the first request was made
        self.has_ended = False

    def request(self) -> Request:
        self._alive_at = self._alive_at or time.monotonic()
        self._parser = Parser(self._parser.last_id)
        headers = {"Accept": "text/event-stream"}
        if self._parser.last_id:
            headers["Last-Event-ID"] = self._parser.last_id
        return Request(
            method="GET", path=self._path, query=self._query, headers=headers, repeatable=True
        )

    def feed(self, piece: bytes) -> list[T]:
        self._backoff, self._alive_at = Backoff(), time.monotonic()
        events = self._parser.feed(piece)
        self.has_ended = self.has_ended or any(event.kind == self._until for event in events)
        return [
            msgspec.json.decode(event.data, type=self._kind)
            for event in events
            if event.kind != self._until
        ]

    def reconnect_delay(self, received: Response | NoResponse, timeout: float) -> float:
        """Return the seconds until the next connection; raise an error if it would be of no use."""
        delay = self._backoff.next(received)
        too_late = time.monotonic() + delay > (self._alive_at or 0.0) + timeout
        if isinstance(received, Response):
            if too_late or not is_temporary(received):
                raise error_from(received)
        elif too_late or received.permanent:
            raise unavailable(self.request(), received, in_doubt=False)
        return delay
