"""Compute in threads what may take long, such as the next thousand occurrences of a rare rule.

There are two threads, one for changes and one for reads. Each does one computation at a time, with a
budget of CPU time: expensive requests wait for each other, and the event loop with all other requests
waits for none. A change holds the row of its schedule meanwhile, and doesn't wait for previews.
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


class _Budget:
    """The CPU time of a computation, counted in its own thread."""

    def __init__(self, seconds: float) -> None:
        self._end = time.thread_time() + seconds

    def spend(self, items: Iterable[T]) -> Iterator[T]:
        for item in items:
            if time.thread_time() > self._end:
                raise ConfigError(
                    "this takes too long to compute: ask for fewer occurrences, a shorter period or "
                    "a simpler rule", code="too-much",
                )  # fmt: skip
            yield item


async def _compute(work: Callable[[Spend], T], thread: _Thread) -> T:
    if thread.waiting >= _MOST_WAITING:
        raise TooManyRequests(
            "too many schedules are being computed: try again soon", retry_after=2
        )
    thread.waiting += 1
    try:
        return await asyncio.get_running_loop().run_in_executor(
            thread.executor, lambda: work(_Budget(BUDGET).spend)
        )
    finally:
        thread.waiting -= 1


async def compute_change(work: Callable[[Spend], T]) -> T:
    """Replace `rota.lib.computing.compute_here` for changes."""
    return await _compute(work, _changes)


async def compute_read(work: Callable[[Spend], T]) -> T:
    """Replace `rota.lib.computing.compute_here` for previews and other reads."""
    return await _compute(work, _previews)
