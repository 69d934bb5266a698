"""Computes what may take long, such as the next thousand occurrences of a rare rule, beside the loop.

Two threads, one for changes and one for the rest; in each one computation at a time, with a budget of
CPU time: whoever asks for much waits for others who do, and the loop, with everybody else's requests,
waits for none of them. A change holds its schedule's row meanwhile, and doesn't wait for previews.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from rota.errors import ConfigError, TooManyRequests
from rota.lib.computing import Spend

BUDGET = 0.5  # seconds of CPU
_MOST_WAITING = 50

T = TypeVar("T")


class _Thread:
    def __init__(self, name: str) -> None:
        self.executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"rota-{name}")
        self.waiting = 0


_previews, _changes = _Thread("previews"), _Thread("changes")  # of the process


class Budget:
    """What a computation may use up, counted in its own thread."""

    def __init__(self, seconds: float) -> None:
        self._start = time.thread_time()
        self._end = self._start + seconds

    @property
    def spent(self) -> float:
        return time.thread_time() - self._start

    def spent_on(self, items: Iterable[T]) -> Iterator[T]:
        for item in items:
            if time.thread_time() > self._end:
                raise ConfigError(
                    "this takes too long to compute: ask for fewer occurrences, a shorter stretch of "
                    "time or a simpler rule", code="too-much",
                )  # fmt: skip
            yield item


async def off_loop(work: Callable[[Budget], T], thread: _Thread = _previews) -> T:
    """Run it in a thread for computations; 429 when too many wait for that."""
    if thread.waiting >= _MOST_WAITING:
        raise TooManyRequests(
            "too many schedules are being computed: try again soon", retry_after=2
        )
    thread.waiting += 1
    try:
        return await asyncio.get_running_loop().run_in_executor(
            thread.executor, lambda: work(Budget(BUDGET))
        )
    finally:
        thread.waiting -= 1


async def compute_change(work: Callable[[Spend], T]) -> T:
    """In place of `rota.lib.computing.compute_here`, for changes."""
    return await off_loop(lambda budget: work(budget.spent_on), _changes)


async def compute_read(work: Callable[[Spend], T]) -> T:
    """In place of `rota.lib.computing.compute_here`, for previews and other reads."""
    return await off_loop(lambda budget: work(budget.spent_on))
