"""Jobs that have ended: pages of them for exports, and whole days for the archive."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from rota.model import HistoryPartition, Job, State
from rota.store.database import Store
from rota.store.jobs import to_job
from rota.store.work import NIL

_PAGE = 200  # a payload and a result may have a megabyte each
_DEAD, _STRAYS = "dead_letters", "strays"
STEPWISE = (_DEAD, _STRAYS)  # what is not dropped by the day


class HistoryStore(Store):
    async def by_hour(self) -> bool:
        """Return whether the partitions to come are hours."""
        return await self._one(bool, "history_hours")

    async def set_by_hour(self, by_hour: bool) -> None:
        await self.database.fetch("set_history_hours", int(by_hour))

    async def partitions(self) -> Sequence[HistoryPartition]:
        return await self._all(HistoryPartition, "list_history_partitions")

    async def now(self) -> datetime:
        return await self._one(datetime, "now")

    async def ended_jobs(
        self, namespace: str, since: datetime, until: datetime, *, state: State | None,
        task: str | None, queue: str | None, after: UUID | None, limit: int,
    ) -> list[Job]:  # fmt: skip
        rows = await self.database.fetch(
            "ended_jobs", namespace, since, until, after or NIL, state, task, queue, limit
        )
        return [to_job(row, self.database.encryption) for row in rows]

    async def old_days(self, retention_days: int) -> list[str]:
        """Return the days of the past whose retention is over, and which still have rows."""
        rows = await self.database.fetch("old_days", retention_days)
        return [row["name"] for row in rows if row["filled"]]

    async def pages_of_day(self, name: str) -> AsyncIterator[list[str]]:
        """Iterate over the rows of a day as JSON, as they are stored, some at a time."""
        (first, end), after = _stretch_of(name), NIL
        while True:
            rows = await self.database.fetch("rows_of_day", name, first, after, _PAGE, end)
            if rows:
                yield [row["row"] for row in rows]
            if len(rows) < _PAGE:
                return
            after = rows[-1]["id"]

    async def count_day(self, name: str) -> int:
        """Count the rows of a day; 0 if it was dropped meanwhile."""
        return await self._one(int, "count_day", name, *_stretch_of(name))

    async def old_rows(self, kind: str, days: int, limit: int) -> Sequence[Any]:
        """Return rows that are not dropped by the day, as (id, JSON). `kind`: one of STEPWISE."""
        return await self.database.fetch(f"old_{kind}", days, limit)

    async def forget_rows(self, kind: str, ids: Sequence[UUID]) -> None:
        await self.database.fetch(f"forget_{kind}", ids)


def _stretch_of(name: str) -> tuple[datetime, datetime]:
    """Return the time of a partition: a day, or an hour."""
    digits = name.removeprefix("past_")
    if by_hour := "_" in digits:
        first = datetime.strptime(f"{digits}+0000", "%Y%m%d_%H%z")
    else:
        first = datetime.strptime(f"{digits}+0000", "%Y%m%d%z")
    return first, first + (timedelta(hours=1) if by_hour else timedelta(days=1))
