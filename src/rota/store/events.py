"""What people should hear of, in the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from rota.core.durations import Baseline
from rota.store.database import Database


class Noticed(msgspec.Struct, frozen=True):
    """Something about a job that people should hear of."""

    kind: str
    task: str
    job_id: UUID
    detail: dict[str, Any]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that people should hear of, as it was recorded."""

    id: int
    at: datetime
    kind: str
    task: str
    job_id: UUID | None
    detail: dict[str, Any]


def timed_out(task: str, job_id: UUID, attempt: int, reason: str, message: str) -> Noticed:
    """An attempt was stopped: `reason` is timeout, maximum or heartbeat."""
    detail = {"attempt": attempt, "reason": reason, "message": message}
    return Noticed("timed_out", task, job_id, detail)


class Slower(msgspec.Struct, frozen=True):
    """A task whose last runs took longer than expected, in the middle."""

    task: str
    recent: float
    expected: float
    runs: int


class EventStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, namespace: str, noticed: Sequence[Noticed]) -> None:
        """Each kind once per job, whoever notices it first."""
        await self._database.fetch(
            "add_events", namespace,
            [one.kind for one in noticed], [one.task for one in noticed],
            [one.job_id for one in noticed],
            [msgspec.json.encode(one.detail).decode() for one in noticed],
        )  # fmt: skip

    # -- what runs usually take

    async def baselines(self, namespace: str) -> dict[str, Baseline]:
        rows = await self._database.fetch("baselines", namespace)
        return {row["task"]: Baseline(row["usual"], row["most"]) for row in rows}

    async def learn_baselines(self, namespace: str, learned: Mapping[str, Baseline]) -> None:
        await self._database.fetch("learn_baselines", namespace, *_baselines(learned))

    async def tell_slower(self, namespace: str, slower: Sequence[Slower]) -> None:
        """An event for each, at most once a day."""
        await self._database.fetch(
            "tell_slower", namespace, [one.task for one in slower],
            [one.recent for one in slower], [one.expected for one in slower],
            [one.runs for one in slower],
        )  # fmt: skip

    async def as_usual(self, namespace: str, tasks: Sequence[str]) -> None:
        await self._database.fetch("as_usual", namespace, tasks)

    async def accept_slower(self, namespace: str, accepted: Mapping[str, Baseline]) -> bool:
        """Whether any of them has been slower for so long that it is usual now."""
        rows = await self._database.fetch("accept_slower", namespace, *_baselines(accepted))
        return bool(rows)

    async def note_queue_lag(self, seconds: float) -> None:
        """An event for each queue whose oldest ready job has been due for longer than that."""
        await self._database.fetch("note_queue_lag", seconds)

    async def note_missed_deadlines(self) -> None:
        if await self._database.fetchval("has_deadlines"):
            await self._database.fetch("note_missed_deadlines")

    async def forget(self, days: int) -> None:
        await self._database.fetch("forget_events", days)

    async def list(
        self, namespace: str, kind: str | None, since: datetime | None, limit: int
    ) -> list[Event]:
        rows = await self._database.fetch("list_events", namespace, kind, since, limit)
        return [
            Event(
                id=row["id"], at=row["at"], kind=row["kind"], task=row["task"],
                job_id=row["job_id"], detail=msgspec.json.decode(row["detail"]),
            )
            for row in rows
        ]  # fmt: skip


def _baselines(learned: Mapping[str, Baseline]) -> tuple[list[str], list[float], list[float]]:
    values = learned.values()
    return list(learned), [each.usual for each in values], [each.most for each in values]
