"""Counts the attempts of a worker as they end. A job costs a few additions."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from time import monotonic

from rota.core.lifecycle import End, GiveBack, TryAgain, Verdict
from rota.core.rank import due_seconds
from rota.model import Outcome, OutcomeKind, State
from rota.runtime.clock import DatabaseClock
from rota.runtime.work import Work

OTHER = "other"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0,
           7200.0)  # fmt: skip
LAG_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0,
               7200.0)  # fmt: skip
OUTCOMES = ("succeeded", "retried", "failed", "cancelled", "returned")
_STOPPED = (OutcomeKind.TIMED_OUT, OutcomeKind.HEARTBEAT_TIMEOUT)
_MOST_TASKS = 200


class TaskTally:
    """The counters of one task."""

    __slots__ = ("buckets", "lag_buckets", "lag_seconds", "outcomes", "seconds", "stopped")

    def __init__(self) -> None:
        self.outcomes = dict.fromkeys(OUTCOMES, 0)
        self.buckets = [0] * (len(BUCKETS) + 1)
        self.seconds = 0.0
        self.lag_buckets = [0] * (len(LAG_BUCKETS) + 1)  # of first attempts
        self.lag_seconds = 0.0
        self.stopped: dict[str, int] = {}  # by reason: timeout, maximum, heartbeat


class Tally:
    """An observer of outcomes."""

    def __init__(self, tasks: Iterable[str], clock: DatabaseClock | None = None) -> None:
        self._clock = clock
        names = sorted(tasks)
        kept = names if len(names) <= _MOST_TASKS else names[: _MOST_TASKS - 1]
        self.tasks = {name: TaskTally() for name in kept}
        self._others = len(names) > len(kept)
        if self._others:
            self.tasks[OTHER] = TaskTally()

    def ended(self, work: Work, outcome: Outcome, verdict: Verdict) -> None:
        tally = self.tasks.get(work.task)
        if tally is None:
            tally = self.tasks.setdefault(OTHER, TaskTally())
        tally.outcomes[_label(verdict)] += 1
        if work.started:
            ran = monotonic() - work.started
            tally.seconds += ran
            tally.buckets[bisect_left(BUCKETS, ran)] += 1
            if work.attempt == 1:
                self._note_lag(tally, work)
        if outcome.kind in _STOPPED:
            reason = work.stopping or "timeout"
            tally.stopped[reason] = tally.stopped.get(reason, 0) + 1

    def _note_lag(self, tally: TaskTally, work: Work) -> None:
        """Count how long after it was due it started, by the database's clock."""
        started = self._clock.seconds(work.started) if self._clock else None
        if started is not None:
            lag = max(started - due_seconds(work.rank, work.priority), 0.0)
            tally.lag_seconds += lag
            tally.lag_buckets[bisect_left(LAG_BUCKETS, lag)] += 1


def _label(verdict: Verdict) -> str:
    if isinstance(verdict, End):
        return "cancelled" if verdict.state is State.CANCELLED else "failed"
    if isinstance(verdict, TryAgain):
        return "retried"
    return "returned" if isinstance(verdict, GiveBack) else "succeeded"
