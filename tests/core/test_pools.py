"""What a pool needs, and how its target follows: by rules, and over simulated hours of load."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.pools import (
    DOWN_SECONDS,
    UP_SECONDS,
    Bounds,
    QueueLoad,
    Scaling,
    next_scaling,
    slots_needed,
    workers_for,
)


def load(
    runnable: float = 0, running: int = 0, arrivals: float = 0, run_time: float = 1.0
) -> QueueLoad:
    return QueueLoad(
        queue="q", runnable=runnable, running=running, arrivals=arrivals, run_time=run_time
    )


def follow(needs: list[float], bounds: Bounds | None = None, every: float = 5.0) -> list[int]:
    """The targets for what is needed, each `every` seconds after the one before."""
    state, found = Scaling(), []
    for place, needed in enumerate(needs):
        state = next_scaling(state, place * every, needed, bounds or Bounds())
        found.append(state.target)
    return found


def test_what_comes_and_what_waits_need_slots_and_what_runs_keeps_its_own():
    assert slots_needed([load(arrivals=10, run_time=2)], 60) == 20
    assert slots_needed([load(runnable=600, run_time=3)], 60) == 30
    assert slots_needed([load(runnable=600, run_time=3), load(arrivals=1, run_time=5)], 60) == 35
    assert slots_needed([load(running=7, arrivals=1)], 60) == 7
    assert slots_needed([], 60) == 0


def test_it_goes_up_at_once_and_at_most_doubles_in_fifteen_seconds():
    assert follow([10, 100, 100, 100, 100, 100, 100, 100], Bounds(step=10)) == [
        10, 10, 10, 20, 20, 20, 40, 40,
    ]  # fmt: skip


def test_it_goes_down_only_to_the_most_of_five_minutes():
    steps = int(DOWN_SECONDS / 5)
    targets = follow([*[80.0] * 4, *[10.0] * (2 * steps)], Bounds(step=40))
    assert targets[3] == 80
    assert min(targets[3 : 3 + steps]) == 80
    assert targets[-1] == 10


def test_a_tenth_is_no_reason_to_change():
    assert set(follow([100, 108, 95, 110, 92] * 3, Bounds(step=100))) == {100}
    assert follow([100, 100, 100, 111], Bounds(step=100))[-1] == 111


def test_nothing_needed_for_five_minutes_is_zero_and_the_first_job_wakes_it():
    targets = follow([1, *[0.0] * 70, 0.02])
    assert targets[0] == 1
    assert targets[69] == 0
    assert targets[-1] == 1


def test_bounds_hold():
    assert follow([0.0], Bounds(least=2)) == [2]
    assert max(follow([1e9] * 50, Bounds(most=8))) == 8


@given(
    needs=st.lists(st.floats(0, 1e6), min_size=1, max_size=200),
    every=st.floats(0.1, 60),
    least=st.integers(0, 5),
    most=st.integers(5, 1_000_000),
)
@settings(max_examples=200, deadline=None)
def test_the_rules_hold_for_any_load(needs, every, least, most):
    bounds = Bounds(least=least, most=most)
    state, history = Scaling(), [(-math.inf, 0)]
    for place, needed in enumerate(needs):
        now, before = place * every, state.target
        state = next_scaling(state, now, needed, bounds)
        assert least <= state.target <= most
        window = [t for at, t in history if at > now - UP_SECONDS]
        window += [t for at, t in history if at <= now - UP_SECONDS][-1:]
        if state.target > before:
            assert state.target <= max(2 * min(window), 1, least, before)
        if state.target < before and state.target < most:
            lately = [n for p, n in enumerate(needs[: place + 1]) if p * every > now - DOWN_SECONDS]
            assert state.target >= min(math.ceil(max(lately) - 1e-9), most)
        history.append((now, state.target))
        assert len(state.needs) <= DOWN_SECONDS / 5 + 2
        assert len(state.targets) <= UP_SECONDS / every + 3


# -- simulated load


class Simulated:
    """A queue with workers: what comes each second, what waits, and how late the oldest starts."""

    def __init__(self, run_time: float, start_up: float, drain_target: float, most: int) -> None:
        self.run_time, self.start_up, self.target = run_time, start_up, drain_target
        self.bounds = Bounds(most=most, step=4)
        self.state = Scaling()
        self.waiting = 0.0
        self.busy = 0.0
        self.starting: list[tuple[float, int]] = []
        self.slots = 0
        self.lags: list[float] = []
        self.targets: list[int] = []
        self.served: list[float] = []

    def run(self, seconds: int, arrivals: Callable[[int], float]) -> None:
        for now in range(seconds):
            came = arrivals(now)
            self.waiting += came
            self.slots = min(self.state.target, self.slots)  # drained workers are gone
            ready = [slots for at, slots in self.starting if at <= now]
            self.slots = max(self.slots, *ready) if ready else self.slots
            self.slots = min(self.slots, self.state.target)
            started = min(self.waiting, self.slots / self.run_time)
            self.waiting -= started
            self.busy = min(self.slots, started * self.run_time)
            self.served.append(started)
            self.lags.append(self.waiting / started if started else self.waiting and math.inf)
            if now % 5 == 0:
                self._decide(now)
            self.targets.append(self.state.target)

    def _decide(self, now: int) -> None:
        rate = sum(self.served[-60:]) / min(len(self.served), 60)
        one = load(self.waiting, math.ceil(self.busy), rate, self.run_time)
        before = self.state.target
        self.state = next_scaling(self.state, now, slots_needed([one], self.target), self.bounds)
        if self.state.target > before:
            self.starting.append((now + self.start_up, self.state.target))
        self.starting = [(at, slots) for at, slots in self.starting if at > now - 60]

    def reversals(self, since: int = 0) -> int:
        moves = [
            b - a for a, b in zip(self.targets[since:], self.targets[since + 1 :], strict=False)
        ]
        signs = [1 if move > 0 else -1 for move in moves if move]
        return sum(1 for a, b in itertools.pairwise(signs) if a != b)


@pytest.mark.parametrize("run_time", [0.1, 2.0, 20.0])
def test_ten_times_the_load_is_caught_up_within_start_up_and_drain_target(run_time):
    pool = Simulated(run_time, start_up=10, drain_target=60, most=10_000)
    quiet = 40 / run_time
    pool.run(3600, lambda now: quiet if now < 1200 else 10 * quiet)
    late = [second for second in range(1200, 3600) if pool.lags[second] > 60]
    assert not late or late[-1] - 1200 <= 10 + 60
    assert all(lag < 60 for lag in pool.lags[1300:])
    assert pool.reversals(600) <= 2


def test_a_load_that_swings_within_minutes_makes_no_pool_swing():
    pool = Simulated(1.0, start_up=10, drain_target=60, most=10_000)
    pool.run(3600, lambda now: 50.0 if now // 60 % 2 else 5.0)
    assert pool.reversals(600) <= 2


def test_bursts_with_quarters_of_an_hour_between_them_are_followed():
    pool = Simulated(1.0, start_up=10, drain_target=60, most=10_000)
    pool.run(3600, lambda now: 100.0 if now % 1800 < 60 else 0.0)
    assert pool.targets[1700] == 0
    assert pool.reversals() <= 4  # up and down, twice
    assert pool.waiting == 0


def test_a_day_follows_its_curve():
    pool = Simulated(1.0, start_up=10, drain_target=60, most=10_000)
    pool.run(4 * 3600, lambda now: 60 + 50 * math.sin(now / (4 * 3600) * 2 * math.pi))
    assert pool.reversals(600) <= 4
    assert max(pool.lags[600:]) < 60


def test_workers_are_whole():
    assert [workers_for(slots, 8) for slots in (0, 1, 8, 9, 64)] == [0, 1, 1, 2, 8]
