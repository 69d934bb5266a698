"""Notices runs that take longer than expected, deadlines that pass, and occurrences that start late.

Protocol. Once a second it looks over what runs on this node, which is never more than the node's
slots, and over what ended since; what it notices is written as events, each kind once per job. What
is expected of a task is what its author said, or else what its runs here have usually taken. Dying
loses nothing but an event.

`Paces` learns what runs usually take. Each worker keeps the last durations of its tasks in memory. The
baseline that they are compared with is stored, one row per task for all workers: learned by the first
worker that has seen enough runs, and then left alone, so that a slow drift can't drag it along and a
restart doesn't begin from slow runs. It is learned again when runs take less than half of it; and when
they have been slower for a week, with an event every day. That row decides which of many workers
records the event. Dying loses the durations in memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from datetime import timedelta
from statistics import median
from time import monotonic
from typing import Any
from uuid import UUID

from rota.config import Settings
from rota.core.durations import ENOUGH, Baseline, declared_baseline, judge_trend, learn_baseline
from rota.core.lifecycle import TryAgain
from rota.model import Outcome, OutcomeKind
from rota.runtime.attempts import failed_once
from rota.runtime.clock import DatabaseClock
from rota.runtime.ticker import Service
from rota.runtime.work import Work
from rota.store.events import EventStore, Noticed, Slower
from rota.task import Task
from rota.worker.runners.results import stop_event
from rota.worker.slots import Slots

_INTERVAL = 1.0
_LOOK_EVERY = 10.0
_READ_EVERY = 60.0
_MOST_TASKS = 1_000
_SUCCEEDED = OutcomeKind.SUCCEEDED
_STOPPED = (OutcomeKind.TIMED_OUT, OutcomeKind.HEARTBEAT_TIMEOUT)
_KINDS = ("slow", "late", "deadline_missed")
_CHECKS = 50  # ended attempts that are checked each second, and then every sixteenth
_MOST_FAILURES = 100  # that become events in a second: a flood of them is one piece of news


class SlowJobMonitor(Service):
    name = "slow_jobs"

    def __init__(
        self, store: EventStore, settings: Settings, tasks: Mapping[str, Task[..., Any]],
        slots: Slots, clock: DatabaseClock,
    ) -> None:  # fmt: skip
        self._store = store
        self._namespace = settings.namespace
        self._tasks = tasks
        self._slots = slots
        self._clock = clock
        self._late_after = timedelta(seconds=settings.late_after)
        self.paces = Paces(store, settings.namespace, tasks)
        self._noted: set[tuple[UUID, str]] = set()
        self._noticed: list[Noticed] = []
        self._count = 0
        self._checked = self._failures = 0  # attempts that were checked, and events, in this second
        self._declared = {
            name for name, task in tasks.items() if task.options_.expected or task.options_.deadline
        }

    async def tick(self) -> float:
        for work in self._slots.running_works():
            if work.started:
                self._check(work, monotonic())
        noticed, self._noticed = self._noticed, []
        self._failures = self._checked = 0
        if noticed:
            await self._store.add(self._namespace, noticed)
        await self.paces.look()
        return _INTERVAL

    def ended(self, work: Work, outcome: Outcome, verdict: object) -> None:
        """Observe an outcome: check the run a last time, and learn from some of them each second."""
        succeeded = outcome.kind is _SUCCEEDED
        if not succeeded:
            self._note_failure(work, outcome, verdict)
        self._count += 1
        many = self._checked >= _CHECKS and self._count & 15
        if many and work.schedule is None and work.task not in self._declared:
            return
        self._checked += 1
        now = monotonic()
        if work.started:
            self._check(work, now)
            if succeeded:
                self.paces.add(work.task, now - work.started)
        if self._noted:
            self._noted.difference_update([(work.id, kind) for kind in _KINDS])

    def _note_failure(self, work: Work, outcome: Outcome, verdict: object) -> None:
        # Only failures that are tried again: the database records how a job ends for good.
        if isinstance(verdict, TryAgain) and outcome.failure is not None:
            self._notice_failure(failed_once(work, outcome.failure))
        if outcome.kind in _STOPPED:
            self._notice_failure(stop_event(work))

    def _check(self, work: Work, now: float) -> None:
        ran = now - work.started
        expected = self.paces.expected(work.task)
        if expected is not None and ran > expected:
            self._notice(work, "slow", {"ran": round(ran, 6), "expected": round(expected, 6)})
        started, due = self._clock.database(work.started), work.due_at
        if started is None or due is None:
            return
        if work.schedule is not None and work.attempt == 1 and started - due > self._late_after:
            self._notice(work, "late", {"due_at": due, "late": (started - due).total_seconds()})
        deadline = self._tasks[work.task].options_.deadline
        if deadline is not None and (started - due).total_seconds() + ran > deadline:
            detail = {"due_at": due, "deadline": deadline, "state": "running"}
            self._notice(work, "deadline_missed", detail)

    def _notice_failure(self, event: Noticed) -> None:
        if self._failures < _MOST_FAILURES:
            self._failures += 1
            self._noticed.append(event)

    def _notice(self, work: Work, kind: str, detail: dict[str, Any]) -> None:
        if (work.id, kind) not in self._noted:
            self._noted.add((work.id, kind))
            self._noticed.append(Noticed(kind, work.task, work.id, detail))


class Paces:
    """Learns what the runs of each task take, and notices when they have become slower."""

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
        unknown, slower, usual = [], {}, []
        for task in ready:
            baseline, declared = self._baseline(task), self._declared(task) is not None
            trend = baseline and judge_trend(self._runs[task], baseline, declared=declared)
            if baseline is None or trend == "quicker":
                unknown.append(task)
            elif trend == "slower":
                slower[task] = baseline
            elif trend == "as usual":
                usual.append(task)
        self._fresh.difference_update(ready)
        await self._learn(unknown)
        await self._record_slower(slower)
        if again := self._slower.intersection(usual):
            await self._store.as_usual(self._namespace, sorted(again))
            self._slower -= again

    async def _learn(self, tasks: list[str]) -> None:
        if tasks:
            learned = {task: learn_baseline(self._runs[task]) for task in tasks}
            await self._store.learn_baselines(self._namespace, learned)
            self._stored = await self._store.baselines(self._namespace)

    async def _record_slower(self, tasks: dict[str, Baseline]) -> None:
        if not tasks:
            return
        slower = [
            Slower(task, median(self._runs[task]), baseline.usual, len(self._runs[task]))
            for task, baseline in tasks.items()
        ]
        await self._store.tell_slower(self._namespace, slower)
        self._slower.update(tasks)
        learned = [task for task in tasks if self._declared(task) is None]
        accepted = {task: learn_baseline(self._runs[task]) for task in learned}
        if accepted and await self._store.accept_slower(self._namespace, accepted):
            self._stored = await self._store.baselines(self._namespace)
