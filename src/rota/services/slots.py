"""Who runs, who waits for a free place, and how many more could be used soon.

Each runner has its own places. What waits for one waits here, in rank order, and can be taken back;
runners are only given what they can start at once (the process runner looks ahead by itself).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeAlias
from uuid import UUID

from rota.config import Settings
from rota.core.demand import prefetch
from rota.core.lifecycle import runs_alone
from rota.runners.base import Runner, Work

# Starts a work that has got its place; usually by handing it to the runner at once.
Begin: TypeAlias = Callable[[Runner, Work], None]

_RATE_WINDOW = 0.25
_FEW = 8


class _Places:
    """The places of one runner."""

    def __init__(self, runner: Runner, ahead: int) -> None:
        self.runner = runner
        self.size = runner.capacity()
        self._ahead = ahead
        self.waiting: deque[tuple[float, Work]] = deque()
        self.running: dict[UUID, Work] = {}
        self.ended = 0
        self.rate = 0.0
        self._since = 0.0

    def measure(self, now: float) -> None:
        elapsed = now - self._since
        if elapsed >= _RATE_WINDOW:
            rate = self.ended / elapsed
            self.rate = rate if rate > self.rate else (self.rate + rate) / 2
            self.ended, self._since = 0, now
            # A runner that pipelines is given so much more that it never runs dry, and nothing when
            # its jobs are long.
            self.size = self.runner.capacity() + min(self._ahead, int(self.rate * 0.02))


class Slots:
    def __init__(self, settings: Settings, begin: Begin) -> None:
        self._settings = settings
        self._begin = begin
        self._places: dict[str, _Places] = {}
        self._by_work: dict[UUID, _Places] = {}
        self._suspect: UUID | None = None  # the one prime suspect that runs here
        self._suspects: deque[tuple[float, Work]] = deque()

    def add(self, name: str, runner: Runner, ahead: int = 0) -> None:
        self._places[name] = _Places(runner, ahead)

    def demand(self, now: float) -> int:
        """How many more jobs could be used soon."""
        demand = 0
        for places in self._places.values():
            places.measure(now)
            held = len(places.running) + len(places.waiting)
            demand += max(places.size - held + prefetch(places.rate, self._settings.prefetch), 0)
        return demand - len(self._suspects)

    def worth_claiming(self) -> int:
        """A claim for fewer than this would be more work than it brings."""
        ahead = sum(prefetch(p.rate, self._settings.prefetch) for p in self._places.values())
        return max(1, ahead // 2)

    def busy(self) -> bool:
        return any(places.running or places.waiting for places in self._places.values())

    def put(self, work: Work, runner: str, now: float) -> None:
        places = self._by_work[work.id] = self._places[runner]
        if runs_alone(work.crashes):
            if self._suspect is not None:
                self._suspects.append((now, work))
                return
            self._suspect = work.id
        if len(places.running) < places.size:
            places.running[work.id] = work
            self._begin(places.runner, work)
        else:
            places.waiting.append((now, work))

    def release(self, work: Work) -> bool:
        """Its place is free for the next. True when it's time to think of claiming more."""
        places = self._by_work.pop(work.id, None)
        if places is None:
            return False
        places.running.pop(work.id, None)
        places.ended += 1
        if work.id == self._suspect:
            self._next_suspect()
        if places.waiting:
            _, following = places.waiting.popleft()
            places.running[following.id] = following
            self._begin(places.runner, following)
        few = max(_FEW, prefetch(places.rate, self._settings.prefetch) // 2)
        return len(places.waiting) < few

    def _next_suspect(self) -> None:
        self._suspect = None
        if self._suspects:
            since, work = self._suspects.popleft()
            places = self._by_work[work.id]
            self._suspect = work.id
            if len(places.running) < places.size:
                places.running[work.id] = work
                self._begin(places.runner, work)
            else:
                places.waiting.append((since, work))

    def find(self, id: UUID) -> Work | None:
        places = self._by_work.get(id)
        if places is None:
            return None
        return places.running.get(id) or next(
            (work for _, work in (*places.waiting, *self._suspects) if work.id == id), None
        )

    def runner_of(self, work: Work) -> Runner:
        return self._by_work[work.id].runner

    def take_waiting_since(self, moment: float) -> list[Work]:
        """What has waited for a place since before this moment, removed."""
        taken: list[Work] = []
        for places in self._places.values():
            while places.waiting and places.waiting[0][0] <= moment:
                taken.append(places.waiting.popleft()[1])
        while self._suspects and self._suspects[0][0] <= moment:
            taken.append(self._suspects.popleft()[1])
        for work in taken:
            del self._by_work[work.id]
            if work.id == self._suspect:
                self._suspect = None
        return taken

    def running_works(self) -> list[Work]:
        return [work for places in self._places.values() for work in places.running.values()]

    def count_running(self) -> int:
        return sum(len(places.running) for places in self._places.values())

    def count_waiting(self) -> int:
        return sum(len(places.waiting) for places in self._places.values()) + len(self._suspects)

    def capacity(self) -> int:
        return sum(places.runner.capacity() for places in self._places.values())
