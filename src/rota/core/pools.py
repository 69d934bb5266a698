"""Decides how many slots a pool of workers needs.

What is needed follows from the load: `arrivals * run time` keeps up with what comes, and `runnable
* run time / drain target` works off within the drain target what waits. Never less than what runs.

The target follows it with care. Up at once, but to no more than twice what it was in the last
fifteen seconds: a number that is wrong for a moment costs little. Down only to the most that was
needed in the last five minutes: a pause between two bursts stops no worker. A change of a tenth or
less isn't made.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

UP_SECONDS = 15.0
DOWN_SECONDS = 300.0
_STEP_SECONDS = 5.0  # the needs within so many seconds are kept as one
_DEAD_BAND = 0.1


class QueueLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The load of a queue that a pool serves."""

    queue: str
    runnable: float  # jobs that could start now: not those of a paused queue, nor over a limit
    running: int
    arrivals: float  # jobs a second
    run_time: float  # seconds that one takes


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of a pool: its slots, and how many it has at least when it grows from none."""

    least: int = 0
    most: int = 1_000_000
    step: int = 1


class Scaling(msgspec.Struct, frozen=True):
    """A target, and what the next one depends on: moments, in seconds, with values."""

    target: int = 0
    targets: tuple[tuple[float, int], ...] = ()  # of the last UP_SECONDS
    needs: tuple[tuple[float, float], ...] = ()  # of the last DOWN_SECONDS


def slots_needed(loads: Iterable[QueueLoad], drain_target: float) -> float:
    """Return how many slots the load keeps busy."""
    needed, running = 0.0, 0
    for load in loads:
        needed += load.run_time * (load.arrivals + load.runnable / drain_target)
        running += load.running
    return max(needed, float(running))


def next_scaling(before: Scaling, now: float, needed: float, bounds: Bounds) -> Scaling:
    """Return the target for what is needed now. `now`: seconds of any clock that doesn't go back."""
    needs = _with_need(before.needs, now, needed)
    peak = max(value for _, value in needs)
    # A target holds until the next one: the last of those that are older counts, too.
    older = [value for at, value in before.targets if at <= now - UP_SECONDS][-1:]
    if not before.targets:
        older = [before.target]
    recent = [(at, value) for at, value in before.targets if at > now - UP_SECONDS]
    lowest = min([*older, *(value for _, value in recent), before.target])
    target = before.target
    if (wanted := _whole(needed)) > target:
        target = min(wanted, max(2 * lowest, bounds.step, target))
    elif (wanted := _whole(peak)) < target:
        target = wanted
    if wanted > 0 and abs(target - before.target) <= _DEAD_BAND * before.target:
        target = before.target
    target = min(max(target, bounds.least), bounds.most)
    kept = [*([(now - UP_SECONDS, older[0])] if older else []), *recent, (now, target)]
    return Scaling(target, tuple(_shortened(kept)), needs)


def workers_for(slots: int, slots_per_worker: int) -> int:
    """Return how many workers have so many slots."""
    return math.ceil(slots / slots_per_worker)


def _whole(slots: float) -> int:
    return math.ceil(slots - 1e-9)


def _with_need(
    needs: Sequence[tuple[float, float]], now: float, needed: float
) -> tuple[tuple[float, float], ...]:
    """Add what is needed now, and leave out what is too old. Few are kept, however often it is asked."""
    kept = [(at, value) for at, value in needs if at > now - DOWN_SECONDS - _STEP_SECONDS]
    if kept and now - kept[-1][0] < _STEP_SECONDS:
        at, value = kept.pop()
        return (*kept, (at, max(value, needed)))
    return (*kept, (now, needed))


def _shortened(targets: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """Leave out targets that are the same as the one before."""
    kept: list[tuple[float, int]] = []
    for at, value in targets:
        if not kept or kept[-1][1] != value:
            kept.append((at, value))
    return kept
