"""Events one after the other, for readers who come back: none is missed, none is told twice.

Protocol. The stream's order is (transaction, number). Events of transactions older than every one that
is under way are settled: nothing can appear before them any more, so the position of the last of them
says all about what was read. Newer ones are told at once as well (a long transaction elsewhere must
not hold up the news), and their numbers are carried in the position until they are settled.

The position is a short text, made for a Last-Event-ID: ``transaction.number`` or, with events that were
read ahead, ``transaction.number.17-19``. It is checked when it comes back, not trusted.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Self

import msgspec

from rota.errors import ConfigError
from rota.store.database import Database
from rota.store.events import Event

_TEXT = re.compile(r"(\d{1,19})\.(\d{1,19})(?:\.(\d{1,19}(?:-\d{1,19})*))?", re.ASCII)
_AHEAD = 100  # so many are told before they are settled; more wait
_LARGEST = 2**63 - 1
_BEGINNING = 0


class Position(msgspec.Struct, frozen=True):
    """How far a reader is."""

    transaction: int = _BEGINNING
    number: int = 0
    ahead: tuple[int, ...] = ()  # read, and not yet settled

    @classmethod
    def parse(cls, text: str) -> Self:
        found = _TEXT.fullmatch(text) if len(text) < 3000 else None
        if found is not None:
            ahead = tuple(int(number) for number in found[3].split("-")) if found[3] else ()
            numbers = (int(found[1]), int(found[2]), *ahead)
            if max(numbers) <= _LARGEST and len(ahead) <= _AHEAD:
                return cls(numbers[0], numbers[1], ahead)
        raise ConfigError(
            "this is not a position in the stream of events: pass the last event's id"
        )

    def __str__(self) -> str:
        ahead = "-".join(str(number) for number in self.ahead)
        return f"{self.transaction}.{self.number}" + (f".{ahead}" if ahead else "")

    def after(self, transaction: int, number: int, settled: bool) -> Position | None:
        """Behind this event too; None when too many wait to be settled."""
        if settled:
            return Position(transaction, number, tuple(n for n in self.ahead if n != number))
        if len(self.ahead) >= _AHEAD:
            return None
        return Position(self.transaction, self.number, (*self.ahead, number))


class Told(msgspec.Struct, frozen=True):
    """An event, and the position behind it."""

    event: Event
    position: Position


class EventStream:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def end(self) -> Position:
        """Behind everything that is settled now."""
        return Position(await self._database.fetchval("end_of_events"))

    async def read(
        self, namespace: str, position: Position, kind: str | None = None, limit: int = 500
    ) -> tuple[list[Told], Position]:
        """What comes behind this position by now, in order; and where that leads to."""
        # Those that were read ahead come again until they are settled, and are passed over.
        rows = await self._database.fetch(
            "events_after", namespace, position.transaction, position.number, kind,
            limit + len(position.ahead),
        )  # fmt: skip
        told: list[Told] = []
        for row in rows:
            known = row["id"] in position.ahead
            if known and not row["settled"]:
                continue
            following = position.after(row["xid"], row["id"], row["settled"])
            if following is None:
                break
            position = following
            if not known:
                told.append(Told(_to_event(row), position))
        return told, position

    async def page(
        self,
        namespace: str,
        kind: str | None,
        since: datetime | None,
        before: int | None,
        limit: int,
    ) -> list[Event]:
        """The newest first."""
        rows = await self._database.fetch("events_page", namespace, kind, since, before, limit)
        return [_to_event(row) for row in rows]


def _to_event(row: Any) -> Event:
    return Event(
        id=row["id"], at=row["at"], kind=row["kind"], task=row["task"], job_id=row["job_id"],
        detail=msgspec.json.decode(row["detail"]),
    )  # fmt: skip
