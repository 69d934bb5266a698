"""Operations on statistics of runs: how many failed, how long they took, and how late they began."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from rota.core import histogram
from rota.core.time.interval import seconds_of
from rota.errors import ConfigError
from rota.model import QueuePeriod, RunPeriod, RunStats, TaskTotals
from rota.operations.base import Operations
from rota.store.run_stats import HOUR, MINUTE, RunStatsStore

# How much of time a request may ask for, and into periods of how many seconds that is cut.
WITHIN = {
    "15m": 60, "1h": 60, "6h": 300, "24h": 3600, "7d": 3 * 3600, "30d": 12 * 3600,
}  # fmt: skip
_SPAN = {"15m": MINUTE, "1h": MINUTE, "6h": MINUTE, "24h": HOUR, "7d": HOUR, "30d": HOUR}
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


class Statistics(Operations):
    """`app.statistics`

    `within` is 15m, 1h, 6h, 24h, 7d or 30d. Runs are jobs that have succeeded, or failed for good. They
    are counted a few seconds after their end. Quantiles are estimates, within a fifth.
    """

    async def task(self, name: str, within: str = "1h") -> RunStats:
        """Return the runs of a task, in all queues; `NotFound` if it has no jobs and no node has it."""
        found = await self._series(within, name, "")
        if not found.runs:
            jobs, _ = await self._rota.jobs.look_whole(task=name, limit=1)
            if not jobs:
                await self._rota.registry.get(name)
        return found

    async def queue(self, name: str, within: str = "1h") -> RunStats:
        """Return the runs of a queue, without Rota's own tasks, and how many jobs were ready."""
        return await self._series(within, "", name)

    async def all(self, within: str = "1h") -> RunStats:
        """Return the runs of the namespace, without Rota's own tasks."""
        return await self._series(within, "", "")

    async def before(self, within: str = "1h") -> tuple[int, int]:
        """Return the runs of the namespace, and the failures, in the same time before `within`."""
        first, end, step = await self._stretch(within)
        store = RunStatsStore(await self._database())
        begin = first - (end - first)
        rows = await store.series(self._namespace, _SPAN[within], "", "", begin, first, step)
        return sum(row["runs"] for row in rows), sum(row["failed"] for row in rows)

    async def queues(
        self, within: str = "1h", *, names: Sequence[str] | None = None
    ) -> dict[str, Sequence[QueuePeriod]]:
        """Return the runs and the numbers of ready jobs of each queue. `names`: only of these."""
        first, end, step = await self._stretch(within)
        store = RunStatsStore(await self._database())
        rows = await store.queues(self._namespace, _SPAN[within], first, end, names)
        found: dict[str, dict[datetime, list[Any]]] = {}
        for row in rows:
            found.setdefault(row["queue"], {}).setdefault(_period(row["at"], step), []).append(row)
        return {
            name: [
                QueuePeriod(
                    at=at, runs=sum(row["runs"] for row in periods.get(at, ())),
                    failed=sum(row["failed"] for row in periods.get(at, ())),
                    ready=_most(periods.get(at, ()), "ready"),
                    ready_lag=_most(periods.get(at, ()), "ready_lag"),
                )
                for at in _periods(first, end, step)
            ]
            for name, periods in found.items()
        }  # fmt: skip

    async def tasks(
        self, within: str = "1h", *, names: Sequence[str] | None = None
    ) -> Sequence[TaskTotals]:
        """Return the sums of each task that nodes have registered, by name, 500 at most.

        `names`: only of these.
        """
        first, end, _ = await self._stretch(within)
        store = RunStatsStore(await self._database())
        rows = await store.tasks(self._namespace, _SPAN[within], first, end, names)
        return [TaskTotals(**row) for row in rows]

    async def _stretch(self, within: str) -> tuple[datetime, datetime, int]:
        """Return from when to when whole periods reach, the last of which has not ended."""
        if within not in WITHIN:
            raise ConfigError(f"within: must be one of {', '.join(WITHIN)}", field="within")
        step = WITHIN[within]
        now = await (await self._rota.store()).now()
        end = _period(now, step) + timedelta(seconds=step)
        return end - timedelta(seconds=seconds_of(within, "within")), end, step

    async def _series(self, within: str, task: str, queue: str) -> RunStats:
        first, end, step = await self._stretch(within)
        store = RunStatsStore(await self._database())
        rows = await store.series(self._namespace, _SPAN[within], task, queue, first, end, step)
        by_period: dict[datetime, list[Any]] = {at: [] for at in _periods(first, end, step)}
        for row in rows:
            by_period.setdefault(row["at"], []).append(row)
        periods = [_to_period(at, found) for at, found in by_period.items()]
        return RunStats(
            first=first, end=end, step=step, periods=periods,
            runs=sum(one.runs for one in periods), failed=sum(one.failed for one in periods),
            seconds=sum(row["seconds"] for row in rows),
            duration=_quantiles(durations := histogram.add(row["durations"] for row in rows)),
            lag=_quantiles(lags := histogram.add(row["lags"] for row in rows)),
            durations=durations, lags=lags,
        )  # fmt: skip


def _period(at: datetime, step: int) -> datetime:
    return _EPOCH + (at - _EPOCH) // timedelta(seconds=step) * timedelta(seconds=step)


def _periods(first: datetime, end: datetime, step: int) -> list[datetime]:
    return [
        first + timedelta(seconds=n * step)
        for n in range(round((end - first).total_seconds() / step))
    ]


def _most(rows: Sequence[Any], name: str) -> Any:
    return max((row[name] for row in rows if row[name] is not None), default=None)


def _to_period(at: datetime, rows: Sequence[Any]) -> RunPeriod:
    return RunPeriod(
        at=at, runs=sum(row["runs"] for row in rows), failed=sum(row["failed"] for row in rows),
        duration=_quantiles(histogram.add(row["durations"] for row in rows)),
        lag=_quantiles(histogram.add(row["lags"] for row in rows)),
        ready=_most(rows, "ready"), ready_lag=_most(rows, "ready_lag"),
    )  # fmt: skip


def _quantiles(counts: Sequence[int]) -> dict[str, float] | None:
    if not sum(counts):
        return None
    return {
        f"p{round(share * 100)}": histogram.quantile(counts, share) or 0.0
        for share in (0.5, 0.95, 0.99)
    }
