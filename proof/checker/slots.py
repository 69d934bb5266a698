"""Whether a worker had a free slot for a job that waited.

A worker's slots are known by what runs on it: its handlers' own journals. A worker that was there, and
that nothing troubled, and that ran fewer handlers than it has slots, had a free one. It owes that slot
to whatever is due. What it owes it to first is what was due earlier: as long as it begins such jobs, a
later one waits its turn. So a job was neglected if some worker had a free slot for the length of the
longest lag that is allowed, and began nothing meanwhile that came before the job.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

import msgspec

from proof.checker.draining import drains_of
from proof.checker.facts import Facts, JobRow
from proof.history import KILL, SHUTDOWN, WITHDRAWAL


class Idle(msgspec.Struct):
    """A stretch for which a worker had a free slot, and began nothing that came before the job."""

    node: str
    since: float
    until: float


class _Worker:
    def __init__(self, node: str) -> None:
        self.node = node
        self.starts: list[tuple[float, float]] = []  # (when, due), in order
        self.moments: list[float] = []  # at which the number of running handlers changes
        self.counts: list[int] = []  # from that moment on
        self.gone = float("inf")

    def count(self, spans: list[tuple[float, float]]) -> None:
        changes: dict[float, int] = defaultdict(int)
        for start, end in spans:
            changes[start] += 1
            changes[end] -= 1
        running = 0
        for moment in sorted(changes):
            running += changes[moment]
            self.moments.append(moment)
            self.counts.append(running)

    def free(self, first: float, last: float, slots: int) -> Iterator[tuple[float, float]]:
        """The stretches of [first, last] in which fewer handlers ran than it has slots."""
        place = max(bisect_right(self.moments, first) - 1, 0)
        since: float | None = None
        for index in range(place, len(self.moments)):
            moment = max(self.moments[index], first)
            if moment >= last:
                break
            if self.counts[index] < slots:
                since = moment if since is None else since
            elif since is not None:
                yield since, moment
                since = None
        if since is not None:
            yield since, last

    def begun_before(self, first: float, last: float, due: float) -> Iterator[float]:
        """The moments in between at which it began something that was due before that."""
        for when, other in self.starts[bisect_left(self.starts, (first,)) :]:
            if when > last:
                return
            if other <= due:
                yield when


class Slots:
    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._slots = facts.meta.slots
        self._workers: dict[str, _Worker] = {}
        spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for job, attempts in facts.attempts.items():
            row = facts.jobs.get(job)
            for attempt in attempts:
                start, node = attempt.start, attempt.start.node
                end = attempt.end.at if attempt.end is not None else float("inf")
                spans[node].append((start.at, end))
                worker = self._workers.setdefault(node, _Worker(node))
                worker.starts.append((start.at, facts.at(row.due_at) if row else start.at))
        for node, worker in self._workers.items():
            worker.count(spans[node])
            worker.starts.sort()
            ends = (KILL, SHUTDOWN, WITHDRAWAL)
            faults = [fault for kind in ends for fault in facts.faults_of(kind, node)]
            # A name is one life of a process: whatever it began after it was told to end is its last.
            worker.gone = min((fault.at for fault in faults), default=float("inf"))
        # A worker that drains owes nothing, until it has heard that it may go on.
        self._drained = [
            (drain.node, drain.since, drain.over + facts.meta.lease_seconds)
            for drain in drains_of(facts)
        ]

    def _drains(self, worker: _Worker, first: float, last: float) -> bool:
        return any(
            # One that has another identity by now is known by no name.
            node in (worker.node, "") and since < last and over > first
            for node, since, over in self._drained
        )

    @property
    def known(self) -> bool:
        return self._slots > 0

    def neglected(self, row: JobRow, due: float, started: float) -> Idle | None:
        """The worker that could have begun it, and for how long it did not."""
        longest = self._facts.meta.max_lag
        for worker in self._workers.values():
            first = max(due, worker.starts[0][0])
            last = min(started, worker.gone)
            for since, until in worker.free(first, last, self._slots):
                cuts = [since, *worker.begun_before(since, until, due), until]
                for begin, end in pairwise(cuts):
                    calm = not self._facts.disturbed(begin, begin + longest)
                    if end - begin > longest and calm and not self._drains(worker, begin, end):
                        return Idle(worker.node, begin, end)
        return None
