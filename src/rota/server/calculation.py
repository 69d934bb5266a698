"""Computes what may take long, such as the next thousand occurrences of a rare rule, beside the loop.

One thread, one computation at a time, each with a budget of CPU time: whoever asks for much waits for
others who do, and the loop, with everybody else's requests, waits for none of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TypeVar

import msgspec

from rota.app import App
from rota.core.time.calendars import NamedCalendar
from rota.core.time.recurrence import Occurrence
from rota.core.time.schedule import ScheduleSpec, compile_schedule
from rota.core.time.words import describe
from rota.errors import ConfigError
from rota.server.problems import Problem
from rota.store.schedules import ScheduleStore

BUDGET = 0.5  # seconds of CPU
_MOST_WAITING = 50

T = TypeVar("T")

_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rota-calculation")
_waiting = 0


class Budget:
    """What a computation may use up, counted in its own thread."""

    def __init__(self, seconds: float) -> None:
        self._end = time.thread_time() + seconds

    def spent_on(self, items: Iterable[T]) -> Iterator[T]:
        for item in items:
            if time.thread_time() > self._end:
                raise Problem(
                    422, "too-much", "this takes too long to compute: ask for fewer occurrences, a "
                    "shorter stretch of time or a simpler rule",
                )  # fmt: skip
            yield item


async def off_loop(work: Callable[[Budget], T]) -> T:
    """Run it in the thread for computations; 429 when too many wait for that."""
    global _waiting  # noqa: PLW0603 - of the process, like the thread
    if _waiting >= _MOST_WAITING:
        raise Problem(
            429, "too-many-requests", "too many previews are being computed: try again soon",
            retry_after=2,
        )  # fmt: skip
    _waiting += 1
    try:
        return await asyncio.get_running_loop().run_in_executor(
            _thread, lambda: work(Budget(BUDGET))
        )
    finally:
        _waiting -= 1


class Coming(msgspec.Struct, frozen=True):
    """A rule in words, and its next occurrences."""

    in_words: str
    occurrences: list[Occurrence]


async def preview(
    tenant: App, spec: ScheduleSpec, count: int, *, after: datetime | None = None
) -> Coming:
    """The next occurrences of a rule, whether it is stored or not."""
    store = await tenant.store()
    start = after or await store.now()
    calendars: dict[str, NamedCalendar] = {}
    if spec.exclude or spec.include:
        named = await ScheduleStore(store.database).calendars()
        calendars = named.get(tenant.settings.namespace, {})

    def compute(budget: Budget) -> Coming:
        try:
            recurrence = compile_schedule(spec, calendars)
            return Coming(describe(spec), list(budget.spent_on(recurrence.after(start, count))))
        except (OverflowError, ValueError) as error:
            raise ConfigError(f"{spec.name}: this is too far away in time: {error}") from None

    return await off_loop(compute)
