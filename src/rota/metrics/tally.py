"""Counts the attempts of a worker as they end. A job costs a few additions."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from time import monotonic

from rota.core.lifecycle import End, GiveBack, TryAgain, Verdict
from rota.model import Outcome, State
from rota.runners.base import Work

OTHER = "other"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0,
           7200.0)  # fmt: skip
OUTCOMES = ("succeeded", "retried", "failed", "cancelled", "returned")
_MOST_TASKS = 200


class TaskTally:
    """Of one task."""

    __slots__ = ("buckets", "outcomes", "seconds")

    def __init__(self) -> None:
        self.outcomes = dict.fromkeys(OUTCOMES, 0)
        self.buckets = [0] * (len(BUCKETS) + 1)
        self.seconds = 0.0


class Tally:
    """An observer of outcomes."""

    def __init__(self, tasks: Iterable[str]) -> None:
        names = sorted(tasks)
        kept = names if len(names) <= _MOST_TASKS else names[: _MOST_TASKS - 1]
        self.tasks = {name: TaskTally() for name in kept}
        self._others = len(names) > len(kept)
        if self._others:
            self.tasks[OTHER] = TaskTally()

    def ended(self, work: Work, _outcome: Outcome, verdict: Verdict) -> None:
        tally = self.tasks.get(work.task)
        if tally is None:
            tally = self.tasks.setdefault(OTHER, TaskTally())
        tally.outcomes[_label(verdict)] += 1
        if work.started:
            ran = monotonic() - work.started
            tally.seconds += ran
            tally.buckets[bisect_left(BUCKETS, ran)] += 1


def _label(verdict: Verdict) -> str:
    if isinstance(verdict, End):
        return "cancelled" if verdict.state is State.CANCELLED else "failed"
    if isinstance(verdict, TryAgain):
        return "retried"
    return "returned" if isinstance(verdict, GiveBack) else "succeeded"
