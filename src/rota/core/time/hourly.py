"""The load of schedules by hour, estimated where they fire often.

Only the first occurrences of a schedule are computed. From there on it is assumed to continue at the
same rate, and its load is called an estimate. `forecast` computes all of them, and how long runs wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec

from rota.core.time.recurrence import Recurrence

MOST = 250  # occurrences of one schedule that are computed
_HOUR = timedelta(hours=1)

Hour = tuple[date, int]


class Expected(msgspec.Struct, frozen=True):
    """The load of one schedule. `moments` are those that were computed."""

    name: str
    hours: dict[Hour, float]
    moments: tuple[datetime, ...]
    exact: bool
    per_day: float

    @property
    def is_frequent(self) -> bool:
        return not self.exact or self.per_day > 24


class BusyMinute(msgspec.Struct, frozen=True):
    """A minute with more runs due than there are slots."""

    at: datetime
    runs: int
    names: Sequence[str]


class HourlyLoad(msgspec.Struct, frozen=True):
    hours: dict[Hour, float]
    names: dict[Hour, Counter[str]]
    days: dict[date, float]
    busy_minutes: Sequence[BusyMinute]
    exact: bool


def expect(recurrence: Recurrence, first: datetime, end: datetime, zone: ZoneInfo) -> Expected:
    """Compute the load of one schedule, by the hours of a zone."""
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
    # Of a part of the occurrences the rate is that of their intervals.
    begin, intervals = (first, len(moments)) if exact else (moments[0], MOST - 1)
    per_day = intervals / max((until - begin) / timedelta(days=1), 1e-6)
    if not exact:
        hour = moments[-1].replace(minute=0, second=0, microsecond=0)
        local = hour.astimezone(zone)
        hours.pop((local.date(), local.hour), None)  # only a part of it was computed
        while hour < end:
            _count(hours, hour, zone, per_day / 24)
            hour += _HOUR
    return Expected(recurrence.name, hours, tuple(moments), exact, per_day)


def without_past(one: Expected, now: datetime, zone: ZoneInfo) -> Expected:
    """Return the load from `now` on, of a load that begins with the hour of `now`."""
    local = now.astimezone(zone)
    hour = (local.date(), local.hour)
    left = tuple(moment for moment in one.moments if moment >= now)
    hours = dict(one.hours)
    if hour in hours:
        due = sum(
            moment.astimezone(zone).hour == hour[1] for moment in left if moment < now + _HOUR
        )
        reached = one.exact or (left and left[-1] >= now + _HOUR)
        share = 1 - (local.minute * 60 + local.second) / 3600
        hours[hour] = float(due) if reached else hours[hour] * share
        if not hours[hour]:
            del hours[hour]
    return msgspec.structs.replace(one, hours=hours, moments=left)


def _count(hours: dict[Hour, float], moment: datetime, zone: ZoneInfo, runs: float) -> None:
    local = moment.astimezone(zone)
    hour = (local.date(), local.hour)
    hours[hour] = hours.get(hour, 0.0) + runs


def add_up(expected: Iterable[Expected], slots: int, *, by_name: bool = True) -> HourlyLoad:
    """Add up the loads of schedules. `by_name`: also count the runs of each schedule by hour."""
    hours: dict[Hour, float] = {}
    names: dict[Hour, Counter[str]] = {}
    days: dict[date, float] = {}
    minutes: dict[datetime, list[str]] = {}
    exact = True
    for one in expected:
        exact = exact and one.exact
        for hour, runs in one.hours.items():
            hours[hour] = hours.get(hour, 0.0) + runs
            days[hour[0]] = days.get(hour[0], 0.0) + runs
            if by_name:
                names.setdefault(hour, Counter())[one.name] += round(runs) or 1
        for moment in one.moments:
            minutes.setdefault(moment.replace(second=0, microsecond=0), []).append(one.name)
    busy = [
        BusyMinute(minute, len(due), sorted(set(due)))
        for minute, due in minutes.items()
        if len(due) > slots
    ]
    busy.sort(key=lambda one: (-one.runs, one.at))
    return HourlyLoad(hours, names, days, busy, exact)
