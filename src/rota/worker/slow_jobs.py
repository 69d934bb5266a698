"""Notices runs that take longer than expected, deadlines that pass, and occurrences that start late.

Protocol. Once a second it looks over what runs on this node, which is never more than the node's
slots, and over what ended since; what it notices is written as events, each kind once per job. What
is expected of a task is what its author said, or else what its runs here have usually taken. Dying
loses nothing but an event.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from time import monotonic
from typing import Any
from uuid import UUID

from rota.core.lifecycle import TryAgain
from rota.model import Outcome, OutcomeKind
from rota.runtime.attempts import failed_once
from rota.runtime.clock import DatabaseClock
from rota.runtime.ticker import Service
from rota.runtime.work import Work
from rota.store.events import EventStore, Noticed, timed_out
from rota.task import Task
from rota.worker.paces import Paces
from rota.worker.runners.failures import stop_message
from rota.worker.slots import Slots

_INTERVAL = 1.0
_STOPPED = (OutcomeKind.TIMED_OUT, OutcomeKind.HEARTBEAT_TIMEOUT)
_KINDS = ("slow", "late", "deadline_missed")
_CHECKS = 50  # ended attempts that are checked each second, and then every sixteenth
_MOST_FAILURES = 100  # that become events in a second: a flood of them is one piece of news


class SlowJobMonitor(Service):
    name = "slow_jobs"

    def __init__(
        self, store: EventStore, namespace: str, tasks: Mapping[str, Task[..., Any]], slots: Slots,
        clock: DatabaseClock, late_after: float,
    ) -> None:  # fmt: skip
        self._store = store
        self._namespace = namespace
        self._tasks = tasks
        self._slots = slots
        self._clock = clock
        self._late_after = timedelta(seconds=late_after)
        self.paces = Paces(store, namespace, tasks)
        self._noted: set[tuple[UUID, str]] = set()
        self._noticed: list[Noticed] = []
        self._count = 0
        self._checked = 0  # ended attempts that were checked in this second
        self._failures = 0
        self._declared = {
            name for name, task in tasks.items() if task.options_.expected or task.options_.deadline
        }

    async def tick(self) -> float:
        for work in self._slots.running_works():
            if work.started:
                self._check(work, monotonic())
        noticed, self._noticed = self._noticed, []
        self._failures = 0
        self._checked = 0
        if noticed:
            await self._store.add(self._namespace, noticed)
        await self.paces.look()
        return _INTERVAL

    def ended(self, work: Work, outcome: Outcome, verdict: object) -> None:
        """Observe an outcome: check the run a last time, and learn from some of them each second."""
        if isinstance(verdict, TryAgain):
            self._notice_failure(work, outcome)
        if outcome.kind in _STOPPED:
            self._notice_stop(work)
        self._count += 1
        many = self._checked >= _CHECKS and self._count & 15
        if many and work.schedule is None and work.task not in self._declared:
            return
        self._checked += 1
        now = monotonic()
        if work.started:
            self._check(work, now)
            if outcome.kind is OutcomeKind.SUCCEEDED:
                self.paces.add(work.task, now - work.started)
        if self._noted:
            self._noted.difference_update([(work.id, kind) for kind in _KINDS])

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

    def _notice_failure(self, work: Work, outcome: Outcome) -> None:
        """Note a failure that is tried again; the database records how a job ends for good."""
        failure = outcome.failure
        if failure is not None and self._failures < _MOST_FAILURES:
            self._failures += 1
            self._noticed.append(failed_once(work, failure))

    def _notice_stop(self, work: Work) -> None:
        if self._failures < _MOST_FAILURES:
            self._failures += 1
            reason, message = work.stopping or "timeout", stop_message(work)
            self._noticed.append(timed_out(work.task, work.id, work.attempt, reason, message))

    def _notice(self, work: Work, kind: str, detail: dict[str, Any]) -> None:
        if (work.id, kind) not in self._noted:
            self._noted.add((work.id, kind))
            self._noticed.append(Noticed(kind, work.task, work.id, detail))
