"""Statistics of runs: small rows by minute and hour, so that no chart reads the history.

Protocol. Triggers append to `tally`, in the transaction that ends jobs, a row for each task of the
statement: how many runs, and the bucket of each one's duration and start lag. So a run is tallied if and
only if its end is committed, whichever way it took; its minute is that of its end, also when the row
comes late. A scheduler's janitor takes tallies and adds them to `run_stats` in one statement: if it
dies, both or neither happened, and two of them take different rows. Nothing reads the history, so that
dropping its days changes nothing here. Minutes are kept for two days, hours as long as jobs, and at
least 31 days.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rota.store.database import Store

MINUTE, HOUR = 60, 3600


class RunStatsStore(Store):
    async def fold(self, most: int) -> int:
        """Take tallies and add them up; return how many."""
        taken: int = await self.database.fetchval("fold_tallies", most)
        return taken

    async def sample_queues(self, most: int) -> None:
        """Note how many jobs of each queue are ready now, and for how long the first has been due."""
        await self.database.fetch("sample_queues", most)

    async def sample_shares(self) -> None:
        """Note what the keys of fair queues were served until now."""
        await self.database.fetch("sample_shares")

    async def forget(self, days: int, step: int) -> int:
        """Delete old rows, and return how many."""
        return await self._one(int, "forget_run_stats", days, step)

    async def series(
        self,
        namespace: str,
        span: int,
        task: str,
        queue: str,
        first: datetime,
        end: datetime,
        step: int,
    ) -> Sequence[Any]:
        return await self.database.fetch(
            "run_series", namespace, span, task, queue, first, end, step
        )

    async def queues(
        self, namespace: str, span: int, first: datetime, end: datetime,
        names: Sequence[str] | None = None,
    ) -> Sequence[Any]:  # fmt: skip
        return await self.database.fetch("queue_series", namespace, span, first, end, names)

    async def tasks(
        self, namespace: str, span: int, first: datetime, end: datetime,
        names: Sequence[str] | None = None,
    ) -> Sequence[Any]:  # fmt: skip
        return await self.database.fetch("task_totals", namespace, span, first, end, names)
