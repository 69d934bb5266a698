"""Cron rules on wall time.

Five fields (minute, hour, day of month, month, day of week), or six with seconds first. Each is a
list of ``*``, ``5``, ``1-5``, ``*/15``, ``10-50/20``, ``5/20`` (from 5 on), with names for months
and weekdays (0 and 7 are Sunday). Also:

- ``?`` is ``*``, in the two day fields.
- ``L`` in day of month is the last day; in day of week ``5L`` or ``FRIL`` is the last Friday.
- ``MON#2`` in day of week is the second Monday.
- ``H`` is a value that is fixed for a seed (the schedule's name) and spread over seeds:
  ``H``, ``H(0-29)``, ``H/15`` (every 15 from an offset within the first 15), ``H(0-29)/10``.
  In day of month it stays within 1-28. A plain day field beside it counts as usual.
- ``@hourly``, ``@daily``, ``@midnight``, ``@weekly``, ``@monthly``, ``@yearly``, ``@annually``.

Day of month and day of week, as in Debian's cron: a day must match *both* fields if one of them
begins with ``*`` (or is ``?``), and *either* of them if neither does. So ``0 0 13 * FRI`` is every
13th and every Friday, and ``0 0 */2 * FRI`` is the Fridays that are odd days of their month.

A month's days depend only on its length and its first weekday: so there are few kinds of months,
a rule keeps the days of each, and one that never fires is proven so when it is made.
"""

from __future__ import annotations

import calendar
from bisect import bisect_left
from datetime import date, datetime, time, timedelta
from functools import lru_cache

from rota.core.time.cron_fields import FIELDS, Days, Field, read_days, read_numbers
from rota.errors import ConfigError

MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_SECOND = timedelta(seconds=1)
# Each length and first weekday of a month that the calendar knows.
_LENGTHS = {2: (28, 29), 4: (30,), 6: (30,), 9: (30,), 11: (30,)}


class CronRule:
    """A parsed rule: `next_after` gives its wall times."""

    def __init__(self, parts: list[str], seed: str) -> None:
        second, minute, hour, day, month, weekday = FIELDS
        self.texts = tuple(parts)
        self.seconds = read_numbers(second, parts[0], seed)
        self.minutes = read_numbers(minute, parts[1], seed)
        self.hours = read_numbers(hour, parts[2], seed)
        self.months = read_numbers(month, parts[4], seed)
        self.days: Days = read_days(day, parts[3], seed)
        self.weekdays: Days = read_days(weekday, parts[5], seed)
        self.both = parts[3][0] in "*?" or parts[5][0] in "*?"
        self._by_kind: dict[tuple[int, int], tuple[int, ...]] = {}

    @property
    def hourly(self) -> bool:
        return len(self.hours) == 24

    def next_after(self, wall: datetime) -> datetime | None:
        wall = wall.replace(microsecond=0) + _SECOND
        day = wall.date()
        if day.month in self.months and day.day in self.days_of(day.year, day.month):
            found = self._time_from(wall.hour, wall.minute, wall.second)
            if found is not None:
                return datetime.combine(day, found)
        following = self._day_after(day)
        if following is None:
            return None
        first = time(self.hours[0], self.minutes[0], self.seconds[0])
        return datetime.combine(following, first)

    def days_of(self, year: int, month: int) -> tuple[int, ...]:
        """The matching days of a month, whether or not the month itself matches."""
        return self._days_of_kind(*calendar.monthrange(year, month))

    def never_fires(self) -> bool:
        return not any(
            self._days_of_kind(first, length)
            for month in self.months
            for length in _LENGTHS.get(month, (31,))
            for first in range(7)
        )

    def _days_of_kind(self, first: int, length: int) -> tuple[int, ...]:
        kind = (first, length)
        if kind not in self._by_kind:
            matching = (n for n in range(1, length + 1) if self._matches(n, first, length))
            self._by_kind[kind] = tuple(matching)
        return self._by_kind[kind]

    def _matches(self, day: int, first: int, length: int) -> bool:
        weekday = (first + day - 1) % 7 + 1  # Monday is 1, Sunday 7
        nth = (day + 6) // 7
        in_month = day in self.days.numbers or (self.days.last and day == length)
        in_week = (
            weekday in self.weekdays.numbers
            or (weekday, nth) in self.weekdays.nth
            or (weekday in self.weekdays.last_of and day + 7 > length)
        )
        return (in_month and in_week) if self.both else (in_month or in_week)

    def _time_from(self, hour: int, minute: int, second: int) -> time | None:
        """The first matching time of day at or after the given one."""
        at = bisect_left(self.seconds, second)
        if hour in self.hours and minute in self.minutes and at < len(self.seconds):
            return time(hour, minute, self.seconds[at])
        at = bisect_left(self.minutes, minute + 1)
        if hour in self.hours and at < len(self.minutes):
            return time(hour, self.minutes[at], self.seconds[0])
        at = bisect_left(self.hours, hour + 1)
        if at < len(self.hours):
            return time(self.hours[at], self.minutes[0], self.seconds[0])
        return None

    def _day_after(self, day: date) -> date | None:
        year, month, number = day.year, day.month, day.day
        while year < 9999:
            if month in self.months:
                days = self.days_of(year, month)
                at = bisect_left(days, number + 1)
                if at < len(days):
                    return date(year, month, days[at])
            at = bisect_left(self.months, month + 1)
            year, month = (
                (year, self.months[at]) if at < len(self.months) else (year + 1, self.months[0])
            )
            number = 0
        return None


@lru_cache(maxsize=4096)
def parse_cron(expression: str, seed: str = "") -> CronRule:
    """The rule of a cron expression; a `ConfigError` says which field is wrong, and why."""
    parts = _parts(expression)
    try:
        rule = CronRule(parts, seed)
    except ConfigError as error:
        raise ConfigError(f"cron {expression!r}: {error}") from None
    if rule.never_fires():
        raise ConfigError(f"cron {expression!r} never fires: {_reason(rule)}")
    return rule


def _parts(expression: str) -> list[str]:
    text = expression.strip()
    if text.startswith("@"):
        if text.lower().startswith("@every"):
            raise ConfigError(
                f"cron {expression!r} is an interval: write every={text[6:].strip()!r}"
            )
        if text.lower() not in MACROS:
            known = ", ".join(MACROS)
            raise ConfigError(f"cron {expression!r}: no such macro; there are {known}")
        text = MACROS[text.lower()]
    parts = text.upper().split()
    if len(parts) not in (5, 6):
        names = ", ".join(field.name for field in FIELDS[1:])
        raise ConfigError(
            f"cron {expression!r} has {len(parts)} fields; write 5 ({names}), or 6 with seconds first"
        )
    return parts if len(parts) == 6 else ["0", *parts]


def _reason(rule: CronRule) -> str:
    longest = max(max(_LENGTHS.get(month, (31,))) for month in rule.months)
    if rule.days.numbers and min(rule.days.numbers) > longest:
        return f"no day {min(rule.days.numbers)} in the given months, which have {longest} at most"
    return "no day matches both day of month and day of week, and one of them begins with *"


__all__ = ["FIELDS", "MACROS", "CronRule", "Field", "parse_cron"]
