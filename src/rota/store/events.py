"""Events in the store, and the stream of them for readers that reconnect.

Protocol of the stream. It misses no event and returns none twice. It is ordered by (transaction,
number). Events of transactions older than all that are under way are settled: nothing can appear before
them any more, so the position of the last of them says which events were read. Newer events are returned
at once as well (a long transaction elsewhere must not delay them), and their numbers are kept in the
position until they are settled.

The position is a short text, made for a Last-Event-ID: ``transaction.number`` or, with events that were
read ahead, ``transaction.number.17-19``. It is checked when it comes back, not trusted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Self
from uuid import UUID

import msgspec

from rota.core.durations import Baseline
from rota.errors import ConfigError
from rota.model import Event
from rota.store.database import Store
from rota.store.rows import columns_of, to_value

_TEXT = re.compile(r"(\d{1,19})\.(\d{1,19})(?:\.(\d{1,19}(?:-\d{1,19})*))?", re.ASCII)
_AHEAD = 100  # how many are returned before they are settled; more wait
_LARGEST = 2**63 - 1


class Noticed(msgspec.Struct, frozen=True):
    """An event of a job, to be recorded."""

    kind: str
    task: str
    job_id: UUID
    detail: dict[str, Any]


def timed_out(task: str, job_id: UUID, attempt: int, reason: str, message: str) -> Noticed:
    """Return the event of an attempt that was stopped; `reason`: timeout, maximum or heartbeat."""
    detail = {"attempt": attempt, "reason": reason, "message": message}
    return Noticed("timed_out", task, job_id, detail)


class Slower(msgspec.Struct, frozen=True):
    """A task whose last runs took longer than expected, by their median."""

    task: str
    recent: float
    expected: float
    runs: int


class EventStore(Store):
    async def add(self, namespace: str, noticed: Sequence[Noticed]) -> None:
        """Record events; each kind once per job, by whichever process is first."""
        details = [msgspec.json.encode(one.detail).decode() for one in noticed]
        columns = columns_of(noticed, "kind", "task", "job_id")
        await self.database.fetch("add_events", namespace, *columns, details)

    # -- what runs usually take

    async def baselines(self, namespace: str) -> dict[str, Baseline]:
        rows = await self.database.fetch("baselines", namespace)
        return {row["task"]: Baseline(row["usual"], row["most"]) for row in rows}

    async def learn_baselines(self, namespace: str, learned: Mapping[str, Baseline]) -> None:
        await self.database.fetch("learn_baselines", namespace, *_baselines(learned))

    async def tell_slower(self, namespace: str, slower: Sequence[Slower]) -> None:
        """Record an event for each, at most once a day."""
        columns = columns_of(slower, *Slower.__struct_fields__)
        await self.database.fetch("tell_slower", namespace, *columns)

    async def as_usual(self, namespace: str, tasks: Sequence[str]) -> None:
        await self.database.fetch("as_usual", namespace, tasks)

    async def accept_slower(self, namespace: str, accepted: Mapping[str, Baseline]) -> bool:
        """Make the slower times of a week the expected ones; return whether there were any."""
        return bool(await self.database.fetch("accept_slower", namespace, *_baselines(accepted)))

    async def note_queue_lag(self, seconds: float) -> None:
        """Record an event for each queue whose oldest ready job has been due for longer than that."""
        await self.database.fetch("note_queue_lag", seconds)

    async def note_missed_deadlines(self) -> None:
        if await self.database.fetchval("has_deadlines"):
            await self.database.fetch("note_missed_deadlines")

    async def forget(self, days: int) -> None:
        await self.database.fetch("forget_events", days)

    async def forget_outbox(self, days: int, most: int) -> int:
        return len(await self.database.fetch("forget_outbox", days, most))

    async def list(
        self, namespace: str, kind: str | None, since: datetime | None, limit: int,
        before: int | None = None,
    ) -> list[Event]:  # fmt: skip
        """List events, newest first; `before` is the last id of the page before."""
        return await self._all(Event, "list_events", namespace, kind, since, limit, before)


def _baselines(learned: Mapping[str, Baseline]) -> tuple[list[str], list[float], list[float]]:
    values = learned.values()
    return list(learned), [each.usual for each in values], [each.most for each in values]


# -- the stream


class Position(msgspec.Struct, frozen=True):
    """A reader's place in the stream."""

    transaction: int = 0
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
        """Return the position after this event too, or None when too many wait to be settled."""
        if settled:
            return Position(transaction, number, tuple(n for n in self.ahead if n != number))
        if len(self.ahead) >= _AHEAD:
            return None
        return Position(self.transaction, self.number, (*self.ahead, number))


class PlacedEvent(msgspec.Struct, frozen=True):
    """An event, and the position after it."""

    event: Event
    position: Position


class EventStream(EventStore):
    async def end(self) -> Position:
        """Return the position after everything that is settled now."""
        return Position(await self.database.fetchval("end_of_events"))

    async def read(
        self, namespace: str, position: Position, kind: str | None = None, limit: int = 500
    ) -> tuple[list[PlacedEvent], Position]:
        """Return the events after this position, in order, and the position after the last of them."""
        # Those that were read ahead are returned until they are settled, and are passed over here.
        rows = await self.database.fetch(
            "events_after", namespace, position.transaction, position.number, kind,
            limit + len(position.ahead),
        )  # fmt: skip
        return _placed(rows, position)

    async def read_all(
        self, namespace: str, position: Position, limit: int
    ) -> tuple[list[PlacedEvent], Position]:
        """The same with what went well, as far as sinks have asked for it."""
        rows = await self.database.fetch(
            "all_events_after", namespace, position.transaction, position.number,
            limit + len(position.ahead),
        )  # fmt: skip
        return _placed(rows, position)


def _placed(rows: Sequence[Any], position: Position) -> tuple[list[PlacedEvent], Position]:
    found: list[PlacedEvent] = []
    for row in rows:
        known = row["id"] in position.ahead
        if known and not row["settled"]:
            continue
        following = position.after(row["xid"], row["id"], row["settled"])
        if following is None:
            break
        position = following
        if not known:
            found.append(PlacedEvent(to_value(row, Event), position))
    return found, position
