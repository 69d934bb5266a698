"""What schedules ask of a stretch of days, hour by hour. Pure.

A schedule that fires often is not walked through to its end: from where the walk stops on it is taken to
go on at the same rate, and the figures are called an estimate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec

from rota.core.time.recurrence import Recurrence

MOST = 250  # occurrences of one schedule that are walked through
_HOUR = timedelta(hours=1)

Hour = tuple[date, int]


class Asked(msgspec.Struct, frozen=True):
    """What one schedule asks for."""

    name: str
    hours: dict[Hour, float]
    moments: tuple[datetime, ...]  # those that were walked through
    exact: bool
    per_day: float

    @property
    def is_frequent(self) -> bool:
        return not self.exact or self.per_day > 24


class Pile(msgspec.Struct, frozen=True):
    """More runs due within a minute than can start at once."""

    at: datetime
    runs: int
    names: Sequence[str]


class Load(msgspec.Struct, frozen=True):
    hours: dict[Hour, float]
    names: dict[Hour, Counter[str]]
    days: dict[date, float]
    piles: Sequence[Pile]
    exact: bool


def ask(recurrence: Recurrence, first: datetime, end: datetime, zone: ZoneInfo) -> Asked:
    hours: dict[Hour, float] = {}
    moments: list[datetime] = []
    for one in recurrence.between(first, end):
        if one.excluded_by is not None:
            continue
        moments.append(one.due_at)
        _count(hours, one.due_at, zone, 1.0)
        if len(moments) >= MOST:
            break
    exact = len(moments) < MOST
    until = end if exact else moments[-1]
    days = max((until - first) / timedelta(days=1), 1e-6)
    per_day = len(moments) / days
    if not exact:
        hour = moments[-1].replace(minute=0, second=0, microsecond=0)
        local = hour.astimezone(zone)
        hours.pop((local.date(), local.hour), None)  # only a part of it was seen
        while hour < end:
            _count(hours, hour, zone, per_day / 24)
            hour += _HOUR
    return Asked(recurrence.name, hours, tuple(moments), exact, per_day)


def _count(hours: dict[Hour, float], moment: datetime, zone: ZoneInfo, runs: float) -> None:
    local = moment.astimezone(zone)
    hour = (local.date(), local.hour)
    hours[hour] = hours.get(hour, 0.0) + runs


def together(asked: Iterable[Asked], slots: int, *, by_name: bool = True) -> Load:
    """All of them. `slots`: how many runs can start at once; `by_name`: also who is due in each hour."""
    hours: dict[Hour, float] = {}
    names: dict[Hour, Counter[str]] = {}
    days: dict[date, float] = {}
    minutes: dict[datetime, list[str]] = {}
    exact = True
    for one in asked:
        exact = exact and one.exact
        for hour, runs in one.hours.items():
            hours[hour] = hours.get(hour, 0.0) + runs
            days[hour[0]] = days.get(hour[0], 0.0) + runs
            if by_name:
                names.setdefault(hour, Counter())[one.name] += round(runs) or 1
        for moment in one.moments:
            minutes.setdefault(moment.replace(second=0, microsecond=0), []).append(one.name)
    piles = [
        Pile(minute, len(due), sorted(set(due)))
        for minute, due in minutes.items()
        if len(due) > slots
    ]
    piles.sort(key=lambda pile: (-pile.runs, pile.at))
    return Load(hours, names, days, piles, exact)
