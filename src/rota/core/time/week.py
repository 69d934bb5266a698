"""The coming week, hour by hour: how busy schedules will keep the slots, and how long runs will wait.

A fluid model by the minute: what is due in a minute adds its seconds of work, and the slots take away
sixty seconds each. What is left is what later runs wait for. It is cheap for any number of schedules;
`forecast` computes each run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from rota.core.time.hourly import Expected

DAYS = 7
_HOURS = DAYS * 24
_MINUTES = _HOURS * 60
_MINUTE = timedelta(minutes=1)
_NAMED = 3


class HourAhead(msgspec.Struct, frozen=True):
    """An hour: runs due, the share of the slots that they use, and the longest wait in seconds."""

    at: datetime
    runs: float
    busy: float
    wait: float
    names: Sequence[str]  # the schedules with most of the work


def coming_week(
    expected: Iterable[Expected], seconds: Mapping[str, float], slots: int, start: datetime
) -> list[HourAhead]:
    """Return the hours of a week.

    Args:
        expected: the loads of schedules, computed from `start` on.
        seconds: how long a run of a schedule takes, by its name.
        slots: of the workers.
        start: the beginning of an hour.
    """
    work: list[float] = [0.0] * _MINUTES
    runs: list[float] = [0.0] * _HOURS
    names: list[dict[str, float]] = [{} for _ in range(_HOURS)]
    for one in expected:
        takes = seconds.get(one.name, 1.0)
        last = -1
        for moment in one.moments:
            last = minute = (moment - start) // _MINUTE
            if 0 <= minute < _MINUTES:
                work[minute] += takes
                runs[minute // 60] += 1
                _add(names[minute // 60], one.name, takes)
        if not one.exact:
            _spread(one, takes, last + 1, work, runs, names)
    return _hours(work, runs, names, slots, start)


def _spread(
    one: Expected, takes: float, begin: int, work: list[float], runs: list[float],
    names: list[dict[str, float]],
) -> None:  # fmt: skip
    """Assume that a frequent schedule goes on at its rate after what was computed of it."""
    per_minute = one.per_day / 1440
    for minute in range(max(begin, 0), _MINUTES):
        work[minute] += per_minute * takes
        runs[minute // 60] += per_minute
        _add(names[minute // 60], one.name, per_minute * takes)


def _add(totals: dict[str, float], name: str, seconds: float) -> None:
    totals[name] = totals.get(name, 0.0) + seconds


def _hours(
    work: Sequence[float], runs: Sequence[float], names: Sequence[Mapping[str, float]], slots: int,
    start: datetime,
) -> list[HourAhead]:  # fmt: skip
    found, backlog = [], 0.0
    for hour in range(_HOURS):
        longest = 0.0
        for minute in range(hour * 60, hour * 60 + 60):
            # What is due together in a minute waits for its own kind as well.
            waiting = backlog + work[minute]
            if work[minute]:
                longest = max(longest, max(waiting - slots * 60.0, 0.0) / slots, backlog / slots)
            backlog = max(waiting - slots * 60.0, 0.0)
        busy = sum(work[hour * 60 : hour * 60 + 60]) / (slots * 3600.0)
        top = sorted(names[hour], key=lambda name: -names[hour][name])[:_NAMED]
        found.append(HourAhead(start + timedelta(hours=hour), runs[hour], busy, longest, top))
    return found
