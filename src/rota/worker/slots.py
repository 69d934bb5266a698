"""Gives claimed jobs slots of their runners, and estimates how many more could be used soon.

Each runner has its own slots. Jobs wait for one here, in rank order, and can be taken back; runners are
only given what they can start at once (the process runner looks ahead by itself).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import chain
from math import ceil
from time import monotonic
from typing import TypeAlias
from uuid import UUID

from rota.config import Settings
from rota.core.demand import prefetch
from rota.core.lifecycle import runs_alone
from rota.runtime.work import Work
from rota.worker.gates import Gates
from rota.worker.runners.base import Runner

# Starts a work that has got its slot; usually by handing it to the runner at once.
Begin: TypeAlias = Callable[[Runner, Work], None]

_RATE_WINDOW = 0.05
_FEW = 8
_SAMPLED = 15  # of so many jobs that end, plus one, the time of one is taken
_NEWEST_SHARE = 0.2


class _Places:
    """The slots of one runner."""

    def __init__(self, runner: Runner, ahead: int) -> None:
        self.runner = runner
        self.size = runner.size
        self.waiting: deque[tuple[float, Work]] = deque()
        self.running: dict[Work, None] = {}  # in the order of their starts
        self.ended = 0
        self.prefetch = 0
        self.few = _FEW  # when fewer than this wait, it's time to claim more
        self.kept = 0  # slots that those who wait leave to others
        self.rate = 0.0
        self.seconds = 0.0  # that a job takes, a moving average
        self._ahead = ahead
        self._since = 0.0

    def measure(self, now: float, limit: int) -> None:
        elapsed = now - self._since
        if elapsed < _RATE_WINDOW:
            return
        rate = self.ended / elapsed
        self.rate = rate if rate > self.rate else (self.rate + rate) / 2
        self.ended, self._since = 0, now
        self.prefetch = prefetch(self.rate, limit, size=self.runner.size, seconds=self.seconds)
        self.few = max(_FEW, self.prefetch // 2)
        # A runner that pipelines is given so much more that it never runs dry, and nothing when
        # its jobs are long.
        self.size = self.runner.size + min(self._ahead, int(self.rate * 0.02))

    def sample(self, work: Work) -> None:
        """Take the time of a job that ends."""
        if work.started:
            self.seconds += (monotonic() - work.started - self.seconds) * _NEWEST_SHARE

    def free(self) -> int:
        """Return how many jobs that don't wait for anybody could start now."""
        unused = self.runner.size - len(self.running)
        return max(unused - len(self.waiting), min(self.kept, unused), 0)

    def has_slot(self, lane: str) -> bool:
        """Whether a job of this lane may start: into what is kept, only one of a sublane."""
        size = self.runner.size - self.kept if self.kept and "#" not in lane else self.size
        return len(self.running) < size

    def startable(self, limit: int) -> int:
        """Return how many could start in a second: by Little's law, in free slots and those to come."""
        busy = len(self.running)
        coming = limit if not busy else min(int(self.size * self.rate / busy), limit)
        return self.size - busy + coming


class Slots:
    def __init__(self, settings: Settings, begin: Begin) -> None:
        self._settings = settings
        self._begin = begin
        self.gates = Gates()
        self._places: dict[str, _Places] = {}
        self._suspect: Work | None = None  # the one prime suspect that runs here
        self._suspects: deque[tuple[float, Work]] = deque()

    def add(self, name: str, runner: Runner, ahead: int = 0) -> None:
        self._places[name] = _Places(runner, ahead)

    def demand(self, now: float) -> int:
        """Return how many more jobs could be used soon."""
        demand = 0
        for places in self._places.values():
            places.measure(now, self._settings.prefetch)
            held = len(places.running) + len(places.waiting)
            demand += max(places.size - held + places.prefetch, 0)
        return demand - len(self._suspects) - self.gates.waiting()

    def free(self) -> int:
        """Return how many jobs could start now."""
        return sum(places.free() for places in self._places.values())

    def keep(self, part: float, most: int) -> None:
        """Keep this part of the slots, as they become free, for jobs of sublanes: at most so many.

        Only of the runners for which jobs wait: those would take each slot before a claim can.
        """
        for places in self._places.values():
            places.kept = min(ceil(places.runner.size * part), most) if places.waiting else 0

    def keeps(self) -> bool:
        return any(places.kept for places in self._places.values())

    def keep_none(self) -> None:
        """Give what was kept to those that wait."""
        for places in self._places.values():
            places.kept = 0
            self._start_waiting(places)

    def early_allowance(self) -> int:
        """Return how many jobs may be held for their moment: about what could start within a second."""
        return sum(places.startable(self._settings.prefetch) for places in self._places.values())

    def worth_claiming(self) -> int:
        """Return the smallest claim that is worth its cost."""
        return max(1, sum(places.prefetch for places in self._places.values()) // 2)

    def busy(self) -> bool:
        return any(places.running or places.waiting for places in self._places.values()) or bool(
            self.gates.waiting()
        )

    def put(self, work: Work, runner: str, now: float) -> None:
        work.place = self._places[runner]
        if self.gates.lanes and not self.gates.enter(work):
            self.gates.wait(work, runner, now)
            return
        if work.crashes:
            self._put(work, now)
        else:
            self._enter(work, now)

    def _put(self, work: Work, now: float) -> None:
        if runs_alone(work.crashes):
            if self._suspect is not None:
                self._suspects.append((now, work))
                return
            self._suspect = work
        self._enter(work, now)

    def _enter(self, work: Work, since: float) -> None:
        places = work.place
        if places.has_slot(work.lane):
            places.running[work] = None
            self._begin(places.runner, work)
        else:
            places.waiting.append((since, work))

    def release(self, work: Work) -> bool:
        """Free its slot for the next. Return whether it's time to claim."""
        places: _Places = work.place
        if work not in places.running:
            return False
        del places.running[work]
        if not places.ended & _SAMPLED:
            places.sample(work)
        places.ended += 1
        if work is self._suspect:
            self._next_suspect()
        if places.waiting:
            self._start_waiting(places)
        if work.gates:
            self._admit(self.gates.leave(work))
        return places.kept > 0 or len(places.waiting) < places.few

    def _start_waiting(self, places: _Places) -> None:
        waiting = places.waiting
        while waiting and places.has_slot(waiting[0][1].lane):
            following = waiting.popleft()[1]
            places.running[following] = None
            self._begin(places.runner, following)

    def _admit(self, works: list[tuple[Work, str]]) -> None:
        """Give slots to jobs that their limits have let through."""
        for work, _ in works:
            self._put(work, monotonic())

    def open_gates(self) -> None:
        """Let through what may run after the limits have changed."""
        self._admit(self.gates.admit_all())

    def _next_suspect(self) -> None:
        self._suspect = None
        if self._suspects:
            since, work = self._suspects.popleft()
            self._suspect = work
            self._enter(work, since)

    def find(self, id: UUID) -> Work | None:
        """Find a job among those that run or wait. Reads all of them: rare, and there are few."""
        waiting = (*(places.waiting for places in self._places.values()), self._suspects)
        works = chain(
            self.running_works(), (work for queue in waiting for _, work in queue),
            self.gates.waiting_works(),
        )  # fmt: skip
        return next((work for work in works if work.id == id), None)

    def take_waiting_since(self, moment: float) -> list[Work]:
        """Remove and return what has waited for a slot since before this moment."""
        taken: list[Work] = self.gates.take_waiting_since(moment)
        for waiting in (*(places.waiting for places in self._places.values()), self._suspects):
            while waiting and waiting[0][0] <= moment:
                taken.append(waiting.popleft()[1])
        if self._suspect in taken:
            self._next_suspect()
        for work in [work for work in taken if work.gates]:
            self._admit(self.gates.leave(work))
        return taken

    def running_works(self) -> list[Work]:
        return [work for places in self._places.values() for work in places.running]

    def count_running(self) -> int:
        return sum(len(places.running) for places in self._places.values())

    def capacity(self) -> int:
        return sum(places.runner.size for places in self._places.values())
