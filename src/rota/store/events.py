"""What people should hear of, in the store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

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
