"""Keeps works that no child has yet, in order, and decides which of them a child is given."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable

from rota.lib import tracing
from rota.runtime.work import Work
from rota.worker.runners.frames import Run
from rota.worker.runners.pace import AHEAD_SECONDS, AHEAD_WORKS, Pace
from rota.worker.runners.spawn import ChildProcess


class Backlog:
    """Given out strictly in order: a work that must be alone is never overtaken by others."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
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
        works = list(self._works)
        self._works.clear()
        return works

    def give_first(self, child: ChildProcess) -> list[Run]:
        """Take one work for an idle child."""
        if child.flights or not self._works:
            return []
        work, _ = self._works.popitem(last=False)
        return [_board(child, work, self._pace.estimate(work))]

    def give_ahead(self, child: ChildProcess, most: int) -> list[Run]:
        """Take works to wait inside a busy child, as long as all of them together are short."""
        batch: list[Run] = []
        if not self._works or not _may_give_ahead(child):
            return batch
        most = min(most, AHEAD_WORKS - len(child.flights))
        while self._works and len(batch) < most:
            work = next(iter(self._works))
            estimate = self._pace.estimate(work)
            if child.load + estimate > AHEAD_SECONDS:
                break
            del self._works[work]
            batch.append(_board(child, work, estimate))
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


def _board(child: ChildProcess, work: Work, estimate: float) -> Run:
    flight = child.board(work, estimate)
    headers = work.headers
    if tracing.active:
        tracing.begin(work)
        headers = tracing.headers_for_child(work)
    return Run(
        flight.seq,
        work.id.bytes,
        work.task,
        work.payload,
        work.token,
        work.attempt,
        work.max_attempts,
        work.guarantee,
        work.due_at,
        work.key,
        headers,
        work.heartbeat_timeout,
    )
