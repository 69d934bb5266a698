"""Keeps works that no child has yet, in order, and decides which of them a child is given.

A work may wait inside a child after another only if both are known to be short.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable
from math import inf

from rota.lib import tracing
from rota.model import Guarantee
from rota.runtime.work import Work
from rota.worker.runners.frames import Run
from rota.worker.runners.spawn import ChildProcess

# The work that a busy child is given ahead: enough to keep it busy while results and new works
# travel, and too little for anybody to notice the wait.
AHEAD_SECONDS = 0.005
AHEAD_WORKS = 64

_NEWEST_SHARE = 0.2
_SHORTEST_TIMEOUT = 1.0


class Pace:
    """A moving average of the seconds that each task takes."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def note(self, task: str, seconds: float) -> None:
        if not 0 <= seconds < inf:
            return
        known = self._seconds.get(task, seconds)
        self._seconds[task] = known + (seconds - known) * _NEWEST_SHARE

    def estimate(self, work: Work) -> float:
        """Return the seconds that it will take; infinity if it must have its child to itself.

        It must when its task is long or unknown, when a death of the child that it did not cause
        would cost it dearly, when it is suspected of causing one, or when waiting would eat up
        a short timeout.
        """
        if work.crashes or work.guarantee is not Guarantee.AT_LEAST_ONCE:
            return inf
        if min(work.timeout or inf, work.heartbeat_timeout or inf) < _SHORTEST_TIMEOUT:
            return inf
        seconds = self._seconds.get(work.task, inf)
        return seconds if seconds < AHEAD_SECONDS else inf


class Backlog:
    """Given out strictly in order: a work that must be alone is never overtaken by others."""

    def __init__(self) -> None:
        self.pace = Pace()
        self._works: OrderedDict[Work, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._works)

    def add(self, work: Work) -> None:
        self._works[work] = None

    def put_back(self, works: Iterable[Work]) -> None:
        """Put works back to the head, where they came from."""
        for work in reversed(list(works)):
            work.started = 0.0
            self._works[work] = None
            self._works.move_to_end(work, last=False)

    def withdraw(self, work: Work) -> bool:
        if work not in self._works:
            return False
        del self._works[work]
        return True

    def withdraw_all(self) -> list[Work]:
        works, self._works = list(self._works), OrderedDict()
        return works

    def give_first(self, child: ChildProcess) -> list[Run]:
        """Take one work for an idle child."""
        if child.flights or not self._works:
            return []
        work, _ = self._works.popitem(last=False)
        return [_put(child, work, self.pace.estimate(work))]

    def give_ahead(self, child: ChildProcess, most: int) -> list[Run]:
        """Take works to wait inside a busy child, as long as all of them together are short."""
        batch: list[Run] = []
        if not self._works or not _may_give_ahead(child):
            return batch
        most = min(most, AHEAD_WORKS - len(child.flights))
        while self._works and len(batch) < most:
            work = next(iter(self._works))
            estimate = self.pace.estimate(work)
            if child.load + estimate > AHEAD_SECONDS:
                break
            del self._works[work]
            batch.append(_put(child, work, estimate))
        return batch


def _may_give_ahead(child: ChildProcess) -> bool:
    # Only when half of what it had is gone: so the writes are few.
    if len(child.flights) > AHEAD_WORKS // 2 or child.load > AHEAD_SECONDS / 2:
        return False
    first = child.first()
    if first is None or child.is_congested():
        return False
    # One that runs longer than it should may run much longer.
    return time.monotonic() - first.work.started <= AHEAD_SECONDS


def _put(child: ChildProcess, work: Work, estimate: float) -> Run:
    flight = child.add(work, estimate)
    headers = work.headers
    if tracing.active:
        tracing.begin(work)
        headers = tracing.headers_for_child(work)
    return Run(
        flight.seq, work.id, work.task, work.payload, work.token, work.attempt, work.max_attempts,
        work.guarantee, work.due_at, work.key, headers, work.heartbeat_timeout,
        work.chunk is not None, work.lane if "=" in work.lane else "",
    )  # fmt: skip
