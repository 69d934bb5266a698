"""Bulk actions on jobs in the store. One short method per query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from rota.store.database import Store


class StoredBulk(msgspec.Struct, frozen=True, kw_only=True):
    id: UUID
    action: str
    actor: str
    at: datetime
    jobs: int
    remembered: int  # jobs of which an undo could bring back
    undone_at: datetime | None
    undone: int | None


class Remembered(NamedTuple):
    """The facts that an undo needs: the time of the action, and what it took away by id, as text."""

    action: str
    at: datetime
    rows: Mapping[str, Any]


class BulkStore(Store):
    async def remember(self, namespace: str, action: str, ids: Sequence[UUID]) -> dict[str, Any]:
        """Lock the jobs that an undo could bring back, and return what the action takes away."""
        query = "remember_open" if action == "cancel" else "remember_dead"
        rows = await self.database.fetch(query, namespace, list(ids))
        return {str(row["id"]): msgspec.json.decode(row["row"]) for row in rows}

    async def add(
        self, id: UUID, namespace: str, action: str, actor: str, ids: Sequence[UUID],
        rows: Mapping[str, Any] | None, at: datetime,
    ) -> None:  # fmt: skip
        encoded = None if rows is None else msgspec.json.encode(rows).decode()
        await self.database.fetch("add_bulk_change", id, namespace, action, actor, ids, encoded, at)

    async def get(self, namespace: str, id: UUID) -> StoredBulk | None:
        return await self._first(StoredBulk, "get_bulk_change", namespace, id)

    async def list(self, namespace: str, limit: int) -> list[StoredBulk]:
        return await self._all(StoredBulk, "list_bulk_changes", namespace, limit)

    async def outcome(self, namespace: str, id: UUID, most: int) -> dict[int, int]:
        """Count the first `most` jobs by state."""
        return dict(await self.database.fetch("bulk_outcome", namespace, id, most))

    async def jobs(self, namespace: str, id: UUID, most: int) -> Sequence[UUID]:
        found: Sequence[UUID] = await self.database.fetchval("bulk_jobs", namespace, id, most)
        return found or ()

    async def begin_undo(self, namespace: str, id: UUID) -> Remembered | None:
        """Mark an action as undone; None: it is, or there is none."""
        rows = await self.database.fetch("begin_undo", namespace, id)
        if not rows:
            return None
        kept = rows[0]["rows"]
        return Remembered(
            rows[0]["action"], rows[0]["at"], msgspec.json.decode(kept) if kept else {}
        )

    async def bring_back(self, namespace: str, kept: Remembered) -> int:
        """Bring jobs back that are still as the action left them; return how many."""
        ids = [UUID(id) for id in kept.rows]
        if kept.action == "cancel":
            return len(await self.database.fetch("undo_cancel", namespace, ids, kept.at))
        await self.database.fetch("restoring")
        rows = msgspec.json.encode(kept.rows).decode()
        if kept.action == "retry":
            return len(await self.database.fetch("undo_retry", namespace, ids, rows))
        return len(await self.database.fetch("undo_discard", namespace, ids, rows, kept.at))

    async def end_undo(self, namespace: str, id: UUID, undone: int) -> None:
        await self.database.fetch("end_undo", namespace, id, undone)
