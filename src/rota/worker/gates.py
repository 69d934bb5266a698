"""Keeps the jobs of a node within its allotments: places under limits of whole queues and tasks.

Protocol. An allotment is how many jobs this node may run at a time under a limit, for as long as the
node lives; the sum over all living nodes never exceeds the limit (docs/architecture.md, "Allotments").
So jobs under such a limit are claimed ahead like any others, and a place that one leaves is the next
one's without a statement. What the database may count on is the ceiling, which is told with each claim:
until its answer is here no more than that run, and more only after the answer. So an answer that is
lost, or comes late, leaves the database with too high a number, never with too low a one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from rota.core.demand import prefetch
from rota.runtime.work import Work
from rota.worker.runners.base import Runner

_RATE_WINDOW = 0.05
_FEW = 8
_UNSEEN = 2.0  # seconds without a ready job, after which we ask for no more places


class Gate:
    """One limit: how many of its jobs run here, and how many may."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.limit = 0  # what we may run
        self.running = 0
        self.told = 0  # the database counts at least so many as ours
        self.more = False  # there may be more jobs than we have
        self.seen_at = 0.0  # a claim has found it in use
        self.runners: set[Runner] = set()  # of its jobs, as far as we have had some
        self.unmet = False  # we could run more than we may
        self.settled_at = 0.0
        self.ended = 0
        self.rate = 0.0
        self.since = 0.0

    @property
    def ceiling(self) -> int:
        return max(self.limit, self.running)

    def most(self, capacity: int) -> int:
        """Return how many of its jobs can run here at a time, of so many slots of all runners."""
        return sum(runner.size for runner in self.runners) or capacity

    def ahead(self, now: float, most: int) -> int:
        """Return how many jobs to hold beyond those that run: a tenth of a second's worth."""
        elapsed = now - self.since
        if elapsed >= _RATE_WINDOW:
            rate = self.ended / elapsed
            self.rate = rate if rate > self.rate else (self.rate + rate) / 2
            self.ended, self.since = 0, now
        return prefetch(self.rate, most)


class GatedLane:
    """A lane whose jobs are under gates, and those that wait for them."""

    def __init__(self, gates: tuple[Gate, ...]) -> None:
        self.gates = gates
        self.waiting: deque[tuple[float, Work, str]] = deque()  # since when, and its runner
        self.few = _FEW

    def open(self) -> bool:
        if len(self.gates) == 1:  # for each job
            gate = self.gates[0]
            return gate.running < gate.limit
        return all(gate.running < gate.limit for gate in self.gates)


class Gates:
    def __init__(self) -> None:
        self.lanes: dict[str, GatedLane] = {}
        self.by_name: dict[str, Gate] = {}

    def waiting(self) -> int:
        return sum(len(lane.waiting) for lane in self.lanes.values())

    def jobs(self, gate: Gate) -> int:
        """Return how many jobs are here under a limit."""
        return gate.running + sum(
            len(lane.waiting) for lane in self.lanes.values() if gate in lane.gates
        )

    def held(self, now: float, most: int, capacity: int) -> dict[str, tuple[int, int, int, int]]:
        """Return what a claim is told of each limit: ceiling, jobs, how many ahead, and slots."""
        held = {}
        for gate in self.by_name.values():
            gate.told = gate.ceiling
            ahead = gate.ahead(now, most)
            held[gate.name] = gate.told, self.jobs(gate), ahead, gate.most(capacity)
        return held

    def take(
        self, lanes: Mapping[str, Iterable[str]], allowed: Mapping[str, int],
        more: Iterable[str], wanted: int, now: float,
    ) -> None:  # fmt: skip
        """Note what a claim has answered."""
        for gate in self.by_name.values():
            # Its queue is paused, or what was ready is gone: others can use its places. A claim may
            # pass over a lane that another one holds at the moment.
            if gate.more and gate.name not in allowed and now - gate.seen_at > _UNSEEN:
                gate.more = gate.unmet = False
        for name, limit in allowed.items():
            gate = self.by_name.setdefault(name, Gate(name))
            gate.limit = limit
            gate.told = max(limit, gate.told)
            gate.more = name in more
            gate.unmet = gate.more and limit < gate.most(wanted)
            gate.settled_at = gate.seen_at = now
        for lane, names in lanes.items():
            gates = tuple(self.by_name[name] for name in names)
            known = self.lanes.setdefault(lane, GatedLane(gates))
            known.gates = gates
            known.few = max(_FEW, min((int(gate.rate * 0.05) for gate in gates), default=0))

    def drop(self, name: str) -> None:
        """Forget a limit that there is no more."""
        gate = self.by_name.pop(name, None)
        for lane in self.lanes.values():
            lane.gates = tuple(each for each in lane.gates if each is not gate)

    def forget(self) -> None:
        """Forget all allotments: they were another lease's. Nothing waits here any more."""
        self.lanes.clear()
        self.by_name.clear()

    def full_lanes(self) -> list[str]:
        """Return the lanes of which we have all that we may run."""
        return [name for name, lane in self.lanes.items() if lane.waiting or not lane.open()]

    def enter(self, work: Work) -> bool:
        """Return whether a job may run; then it counts."""
        lane = self.lanes.get(work.lane)
        if lane is None:
            return True
        if lane.waiting or not lane.open():
            return False
        self._count(lane, work)
        return True

    def wait(self, work: Work, runner: str, since: float) -> None:
        self.lanes[work.lane].waiting.append((since, work, runner))

    def leave(self, work: Work) -> list[tuple[Work, str]]:
        """Uncount a job. Return those that may run now."""
        for gate in work.gates:
            gate.running -= 1
            gate.ended += 1
        freed = work.gates
        work.gates = ()
        if len(self.lanes) == 1:
            lane = self.lanes.get(work.lane)
            return self.admit(lane) if lane is not None and lane.waiting else []
        following: list[tuple[Work, str]] = []
        for lane in self.lanes.values():
            if lane.waiting and not set(lane.gates).isdisjoint(freed):
                following += self.admit(lane)
        return following

    def admit(self, lane: GatedLane | None) -> list[tuple[Work, str]]:
        """Return the jobs of a lane that may run now, counted."""
        following: list[tuple[Work, str]] = []
        if lane is not None:
            while lane.waiting and lane.open():
                _, work, runner = lane.waiting.popleft()
                self._count(lane, work)
                following.append((work, runner))
        return following

    def admit_all(self) -> list[tuple[Work, str]]:
        following: list[tuple[Work, str]] = []
        for lane in self.lanes.values():
            following += self.admit(lane)
        for name in [name for name, lane in self.lanes.items() if not lane.gates]:
            del self.lanes[name]  # its limits are gone, and nothing waits for them
        return following

    def is_low(self, work: Work) -> bool:
        """Whether it's time to claim more, or to give something back, after this job has ended."""
        lane = self.lanes.get(work.lane)
        if lane is None:
            return False
        more = any(gate.more for gate in lane.gates)
        if more:
            return len(lane.waiting) < lane.few
        return not lane.waiting and any(not gate.running and gate.told for gate in lane.gates)

    def take_waiting_since(self, moment: float) -> list[Work]:
        taken: list[Work] = []
        for lane in self.lanes.values():
            while lane.waiting and lane.waiting[0][0] <= moment:
                taken.append(lane.waiting.popleft()[1])
        return taken

    def waiting_works(self) -> Iterable[Work]:
        return (work for lane in self.lanes.values() for _, work, _ in lane.waiting)

    def _count(self, lane: GatedLane, work: Work) -> None:
        work.gates = lane.gates
        for gate in lane.gates:
            gate.running += 1
            gate.runners.add(work.place.runner)
