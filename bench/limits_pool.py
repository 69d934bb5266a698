"""The case of `bench.limits` in which the load of a pool becomes ten times as high, and falls again."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Iterator
from typing import Any

from bench.ground import Ground
from bench.limits_app import declare
from bench.limits_ground import Figures, Place, Programs, Size, place

_SECONDS = 0.2  # that a job takes
_SLOTS, _MOST = 2, 10  # of a worker, and workers
_LOW, _HIGH = 6.0, 60.0  # jobs a second
_TARGET = 2.0  # seconds that the oldest job may wait
_ROTA = [sys.executable, "-c", "from rota.cli import main; main()"]
_LAG = """
    select coalesce(extract(epoch from clock_timestamp() - min(due_at)), 0)::float8
    from rota.present where state = 1 and due_at <= clock_timestamp()
"""


async def pool(ground: Ground, size: Size) -> Figures:
    """From load x10 until the lag is under its target for good; how often the number of workers turned
    round; and jobs that began more than once."""
    async with place(ground, "pool") as made:
        task = declare(made.app)
        await made.app.migrate()
        folder = ground.folder / made.database
        with Programs(made.url, folder, heartbeat=1) as programs:
            command = [*_ROTA, "pool", "bench.limits_app:app", "--min", "1", "--max", str(_MOST),
                       "--slots", str(_SLOTS), "--drain-target", f"{size.drain_target:g}s"]  # fmt: skip
            scheduler = [*_ROTA, "start", "bench.limits_app:app", "--role", "scheduler"]
            programs.run(scheduler)
            programs.run(command)
            begun = time.monotonic()
            startup = await _first_worker(made) - begun
            watch = _Watch(made)
            watching = asyncio.create_task(watch.run())
            numbers = itertools.count()
            await _offer(task, numbers, _LOW, size.load_seconds)
            stepped = time.monotonic()
            await _offer(task, numbers, _HIGH, size.load_seconds * 2 + size.drain_target)
            ended = time.monotonic()
            await _offer(task, numbers, _LOW, size.load_seconds)
            await made.until_empty()
            watch.stopping = True
            await watching
            starts = programs.records("started")
            starts.read()
            again = await made.value("select count(*) from rota.past where attempt > 1")
    late = [at for at, lag in watch.lags if stepped <= at <= ended and lag > _TARGET]
    return {
        "seconds": max(late, default=stepped) - stepped, "allowed": startup + size.drain_target,
        "startup": startup, "reversals": watch.reversals(), "most_workers": max(watch.counts),
        "interrupted": again + starts.twice(), "jobs": next(numbers),
    }  # fmt: skip


async def _first_worker(made: Place) -> float:
    async with asyncio.timeout(60):
        while not await made.value("select count(*) from rota.node where 'worker' = any(roles)"):
            await asyncio.sleep(0.05)
    return time.monotonic()


async def _offer(task: Any, numbers: Iterator[int], a_second: float, seconds: float) -> None:
    began = time.monotonic()
    for offered in range(int(a_second * seconds)):
        await asyncio.sleep(max(began + offered / a_second - time.monotonic(), 0))
        await task.submit(next(numbers), _SECONDS)


class _Watch:
    """The lag and the number of workers, four times a second."""

    def __init__(self, made: Place) -> None:
        self._place = made
        self.lags: list[tuple[float, float]] = []
        self.counts: list[int] = []
        self.stopping = False

    async def run(self) -> None:
        async with self._place.connection() as c:
            while not self.stopping:
                self.lags.append((time.monotonic(), await c.fetchval(_LAG)))
                count = await c.fetchval(
                    "select count(*) from rota.node where state = 'live' and 'worker' = any(roles)"
                )
                self.counts.append(count)
                await asyncio.sleep(0.25)

    def reversals(self) -> int:
        """Return how often the number rose after it had fallen, or fell after it had risen."""
        steps = [b - a for a, b in itertools.pairwise(self.counts) if a != b]
        return sum(1 for a, b in itertools.pairwise(steps) if (a > 0) != (b > 0))
