"""Learns what the runs of each task take, and notices when they have become consistently slower.

Protocol. Each worker keeps the last durations of its tasks in memory. The baseline that they are
compared with is stored, one row per task for all workers: learned by the first worker that has seen
enough runs, and then left alone, so that a slow drift can't drag it along and a restart doesn't begin
from slow runs. It is learned again when runs take less than half of it; and when they have been slower
for a week, in which people were told every day. Who tells is decided by that row: of many workers one
does. Dying loses the durations in memory, nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from statistics import median
from time import monotonic
from typing import Any

from rota.core.durations import (
    ENOUGH,
    Baseline,
    Trend,
    declared_baseline,
    judge_trend,
    learn_baseline,
)
from rota.store.events import EventStore, Slower
from rota.task import Task

_LOOK_EVERY = 10.0
_READ_EVERY = 60.0
_MOST_TASKS = 1_000


class Paces:
    def __init__(
        self, store: EventStore, namespace: str, tasks: Mapping[str, Task[..., Any]]
    ) -> None:
        self._store = store
        self._namespace = namespace
        self._tasks = tasks
        self._runs: dict[str, deque[float]] = {}
        self._stored: dict[str, Baseline] = {}
        self._fresh: set[str] = set()  # tasks with runs since the last look
        self._slower: set[str] = set()  # tasks that were slower at the last check
        self._read_at = -_READ_EVERY
        self._looked_at = -_LOOK_EVERY

    def add(self, task: str, seconds: float) -> None:
        """Add the duration of a run that has succeeded."""
        runs = self._runs.get(task)
        if runs is None:
            if len(self._runs) >= _MOST_TASKS:
                return
            runs = self._runs[task] = deque(maxlen=ENOUGH)
        runs.append(seconds)
        self._fresh.add(task)

    def expected(self, task: str) -> float | None:
        """Return what a run should not exceed; None while too little is known."""
        baseline = self._baseline(task)
        return baseline.most if baseline else None

    def _declared(self, task: str) -> float | None:
        known = self._tasks.get(task)
        return known.options_.expected if known is not None else None

    def _baseline(self, task: str) -> Baseline | None:
        declared = self._declared(task)
        return declared_baseline(declared) if declared else self._stored.get(task)

    async def look(self) -> None:
        """Learn from runs and record events, every few seconds."""
        now = monotonic()
        if now - self._looked_at >= _LOOK_EVERY:
            self._looked_at = now
            await self.look_now()

    async def look_now(self) -> None:
        """Learn from runs and record events now."""
        if monotonic() - self._read_at >= _READ_EVERY:
            self._stored = await self._store.baselines(self._namespace)
            self._read_at = monotonic()
        ready = [task for task in self._fresh if len(self._runs[task]) >= ENOUGH]
        if not ready:
            return
        trends = {task: self._trend(task) for task in ready}
        self._fresh.difference_update(ready)
        await self._learn([task for task, trend in trends.items() if trend in (None, "quicker")])
        await self._tell([task for task, trend in trends.items() if trend == "slower"])
        usual = [task for task, trend in trends.items() if trend == "as usual"]
        if again := self._slower.intersection(usual):
            await self._store.as_usual(self._namespace, sorted(again))
            self._slower -= again

    def _trend(self, task: str) -> Trend | None:
        baseline = self._baseline(task)
        if baseline is None:
            return None
        declared = self._declared(task) is not None
        return judge_trend(self._runs[task], baseline, declared=declared)

    async def _learn(self, tasks: list[str]) -> None:
        if tasks:
            learned = {task: learn_baseline(self._runs[task]) for task in tasks}
            await self._store.learn_baselines(self._namespace, learned)
            self._stored = await self._store.baselines(self._namespace)

    async def _tell(self, tasks: list[str]) -> None:
        if not tasks:
            return
        slower = []
        for task in tasks:
            baseline, runs = self._baseline(task), self._runs[task]
            assert baseline is not None
            slower.append(Slower(task, median(runs), baseline.usual, len(runs)))
        await self._store.tell_slower(self._namespace, slower)
        self._slower.update(tasks)
        learned = [task for task in tasks if self._declared(task) is None]
        accepted = {task: learn_baseline(self._runs[task]) for task in learned}
        if accepted and await self._store.accept_slower(self._namespace, accepted):
            self._stored = await self._store.baselines(self._namespace)
