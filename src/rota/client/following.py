"""Answers that go on (server-sent events), taken up again where they were cut. No I/O.

Protocol. The shell opens `request()`, passes on the bytes as they come, and gives out what `feed` makes
of them, until the stream `has_ended`. When it is cut (the server stops, the line breaks, nothing at all
is heard for three signs of life) it opens again, with the id of the last event that was *complete*: half
an event is forgotten, and told again. So nothing is missed and nothing is told twice. It gives up when
no server could be reached for `timeout` seconds.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from rota.client.asking import Answer, Ask, Pauses, Rules, Unheard, is_passing, unavailable
from rota.client.problems import error_of

T = TypeVar("T")

SILENCE = 45.0  # seconds: three signs of life of the server


class Told(NamedTuple):
    kind: str
    data: bytes


class Parser:
    """Pieces of an event stream to events."""

    def __init__(self, last_id: str) -> None:
        self.last_id = last_id
        self._rest = b""
        self._id = last_id
        self._kind = ""
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> list[Told]:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        return [told for line in lines if (told := self._line(line.removesuffix(b"\r")))]

    def _line(self, line: bytes) -> Told | None:
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

    def _dispatch(self) -> Told | None:
        """An id without data is where to go on from, and no event."""
        self.last_id = self._id
        data, kind = self._data, self._kind
        self._data, self._kind = [], ""
        return Told(kind, b"\n".join(data)) if data else None


class Follow(Generic[T]):
    """A stream to follow: where it is, what its events hold, and which of them is the last."""

    def __init__(
        self, path: str, query: Mapping[str, Any], kind: type[T], until: str | None = None
    ) -> None:
        self._path = path
        self._query = query
        self._kind = kind
        self._until = until
        self.last_id = ""
        self.has_ended = False

    def start(self, rules: Rules) -> Following[T]:
        return Following(self, rules)

    def request(self) -> Ask:
        headers = {"Accept": "text/event-stream"}
        if self.last_id:
            headers["Last-Event-ID"] = self.last_id
        return Ask(
            method="GET", path=self._path, query=self._query, headers=headers, repeatable=True
        )

    def take(self, told: Told) -> list[T]:
        if told.kind == self._until:
            self.has_ended = True
            return []
        return [msgspec.json.decode(told.data, type=self._kind)]


class Following(Generic[T]):
    """One reader of a stream, over as many connections as it takes."""

    def __init__(self, follow: Follow[T], rules: Rules) -> None:
        self._follow = follow
        self._rules = rules
        self._parser = Parser("")
        self._heard()

    @property
    def has_ended(self) -> bool:
        return self._follow.has_ended

    def _heard(self) -> None:
        self._pauses = Pauses()
        self._deadline = time.monotonic() + self._rules.timeout

    def request(self) -> Ask:
        self._parser = Parser(self._follow.last_id)
        return self._follow.request()

    def feed(self, piece: bytes) -> list[T]:
        self._heard()
        found: list[T] = []
        for told in self._parser.feed(piece):
            found += self._follow.take(told)
        self._follow.last_id = self._parser.last_id
        return found

    def cut(self, heard: Answer | Unheard) -> float:
        """Seconds until it is opened again; raises when that is of no use."""
        if isinstance(heard, Answer) and not is_passing(heard):
            raise error_of(heard)
        pause = self._pauses.next(heard)
        final = isinstance(heard, Unheard) and heard.final
        if final or time.monotonic() + pause > self._deadline:
            if isinstance(heard, Answer):
                raise error_of(heard)
            raise unavailable(self._follow.request(), heard, in_doubt=False)
        return pause


CLOSED = Unheard("the server closed the stream", sent=True)
