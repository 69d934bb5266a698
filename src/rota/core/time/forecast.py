"""Forecasts load: replays occurrences against usual durations and a number of slots.

First come, first served: each occurrence takes the first free slot at or after its due moment and
holds it for its schedule's usual duration. Overlap policies and other work are left out.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from rota.core.time.recurrence import Recurrence
from rota.errors import ConfigError
from rota.lib.computing import Spend, unlimited

_MAX_RUNS = 1_000_000


class Load(msgspec.Struct, frozen=True):
    """A schedule, and how many seconds a run of it usually takes."""

    recurrence: Recurrence
    duration: float


class Run(msgspec.Struct, frozen=True):
    name: str
    due_at: datetime
    start: datetime
    end: datetime

    @property
    def waited(self) -> float:
        return (self.start - self.due_at).total_seconds()


class Bucket(msgspec.Struct):
    """`busy` is slot-seconds of work, `waited` the longest wait of those due in it, in seconds."""

    start: datetime
    due: int = 0
    busy: float = 0.0
    waited: float = 0.0


class PileUp(msgspec.Struct, frozen=True):
    """A stretch in which runs wait for a slot without a break."""

    start: datetime
    end: datetime
    runs: int
    waited: float


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """`use` is the share of all slots that is busy; `peak` the bucket with the most work."""

    runs: int
    buckets: list[Bucket]
    peak: Bucket | None
    pile_ups: list[PileUp]
    mean_wait: float
    max_wait: float
    use: float


def forecast(
    loads: Sequence[Load], start: datetime, end: datetime, slots: int, bucket: float = 900.0,
    spend: Spend = unlimited,
) -> Forecast:  # fmt: skip
    """Forecast the load from `start` to `end`, in buckets of so many seconds."""
    if slots < 1 or bucket <= 0 or end <= start:
        raise ConfigError("forecast: needs slots >= 1, bucket > 0 seconds, and end after start")
    runs = _replay(_due(loads, start, end, spend), start, slots)
    buckets = _buckets(runs, start, end, bucket)
    waits = [run.waited for run in runs]
    busy = sum(one.busy for one in buckets)
    return Forecast(
        runs=len(runs),
        buckets=buckets,
        peak=max(buckets, key=lambda one: one.busy) if runs else None,
        pile_ups=_pile_ups(runs),
        mean_wait=sum(waits) / len(waits) if waits else 0.0,
        max_wait=max(waits, default=0.0),
        use=busy / (slots * (end - start).total_seconds()),
    )


def _due(
    loads: Sequence[Load], start: datetime, end: datetime, spend: Spend
) -> list[tuple[datetime, str, float]]:
    due: list[tuple[datetime, str, float]] = []
    for load in loads:
        due.extend(
            (found.due_at, load.recurrence.name, load.duration)
            for found in spend(load.recurrence.between(start, end))
            if found.excluded_by is None
        )
        if len(due) > _MAX_RUNS:
            raise ConfigError(f"forecast: over {_MAX_RUNS} runs; take fewer days")
    due.sort()
    return due


def _replay(due: list[tuple[datetime, str, float]], start: datetime, slots: int) -> list[Run]:
    free = [start] * slots
    runs = []
    for due_at, name, duration in due:
        begin = max(due_at, free[0])
        end = begin + timedelta(seconds=duration)
        heapq.heapreplace(free, end)
        runs.append(Run(name, due_at, begin, end))
    return runs


def _buckets(runs: list[Run], start: datetime, end: datetime, size: float) -> list[Bucket]:
    width = timedelta(seconds=size)
    count = -((start - end) // width)
    buckets = [Bucket(start + width * n) for n in range(count)]
    for run in runs:
        own = (run.due_at - start) // width
        if own < count:
            buckets[own].due += 1
            buckets[own].waited = max(buckets[own].waited, run.waited)
        first, last = (run.start - start) // width, (run.end - start) // width
        for one in buckets[first : last + 1]:
            shared = min(run.end, one.start + width, end) - max(run.start, one.start)
            one.busy += max(0.0, shared.total_seconds())
    return buckets


def _pile_ups(runs: list[Run]) -> list[PileUp]:
    found: list[PileUp] = []
    for run in runs:
        if run.waited <= 0:
            continue
        if found and run.due_at <= found[-1].end:
            one = found.pop()
            end = max(one.end, run.start)
            found.append(PileUp(one.start, end, one.runs + 1, max(one.waited, run.waited)))
        else:
            found.append(PileUp(run.due_at, run.start, 1, run.waited))
    return found
