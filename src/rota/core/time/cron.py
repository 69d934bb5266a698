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
a rule keeps the days of each, and a rule that never fires is refused when it is parsed.
"""

from __future__ import annotations

import calendar
import hashlib
import re
from bisect import bisect_left
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import NamedTuple

from rota.errors import ConfigError

_MACROS = {
    "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}  # fmt: skip
_SECOND = timedelta(seconds=1)
# Each length and first weekday of a month that the calendar knows.
_LENGTHS = {2: (28, 29), 4: (30,), 6: (30,), 9: (30,), 11: (30,)}
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_SPREAD = re.compile(r"H(?:\((\d+)-(\d+)\))?(?:/(\d+))?")


class Field(NamedTuple):
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    spread_high: int = 0  # up to where H may go


class Days(NamedTuple):
    """The days that a day field asks for. Weekdays: Monday is 1, Sunday 7."""

    numbers: frozenset[int]
    last: bool = False
    nth: frozenset[tuple[int, int]] = frozenset()
    last_of: frozenset[int] = frozenset()


_FIELDS = (
    Field("second", 0, 59, (), 59),
    Field("minute", 0, 59, (), 59),
    Field("hour", 0, 23, (), 23),
    Field("day of month", 1, 31, (), 28),
    Field("month", 1, 12, _MONTHS, 12),
    Field("day of week", 0, 7, _WEEKDAYS, 6),
)


class CronRule:
    """A parsed rule: `next_after` gives its wall times."""

    def __init__(self, parts: list[str], seed: str) -> None:
        second, minute, hour, day, month, weekday = _FIELDS
        self.seconds = _read_numbers(second, parts[0], seed)
        self.minutes = _read_numbers(minute, parts[1], seed)
        self.hours = _read_numbers(hour, parts[2], seed)
        self.months = _read_numbers(month, parts[4], seed)
        self.days = _read_days(day, parts[3], seed)
        self.weekdays = _read_days(weekday, parts[5], seed)
        self.hourly = len(self.hours) == 24
        self.both = parts[3][0] in "*?" or parts[5][0] in "*?"
        self._by_kind: dict[tuple[int, int], tuple[int, ...]] = {}

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
        """Return the matching days of a month, whether or not the month itself matches."""
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
        """Return the first matching time of day at or after the given one."""
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
    """Parse a cron expression. Raises `ConfigError`, which names the field that is wrong."""
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
        if re.match(r"@every\b", text, re.IGNORECASE):
            raise ConfigError(
                f"cron {expression!r} is an interval: write every={text[6:].strip()!r}"
            )
        if text.lower() not in _MACROS:
            known = ", ".join(_MACROS)
            raise ConfigError(f"cron {expression!r}: no such macro; there are {known}")
        text = _MACROS[text.lower()]
    parts = text.upper().split()
    if len(parts) not in (5, 6):
        names = ", ".join(field.name for field in _FIELDS[1:])
        raise ConfigError(
            f"cron {expression!r} has {len(parts)} fields; write 5 ({names}), or 6 with seconds first"
        )
    return parts if len(parts) == 6 else ["0", *parts]


def _reason(rule: CronRule) -> str:
    longest = max(max(_LENGTHS.get(month, (31,))) for month in rule.months)
    if rule.days.numbers and min(rule.days.numbers) > longest:
        return f"no day {min(rule.days.numbers)} in the given months, which have {longest} at most"
    return "no day matches both day of month and day of week, and one of them begins with *"


def _read_numbers(field: Field, text: str, seed: str) -> tuple[int, ...]:
    """Read the sorted numbers of a field without L and #."""
    numbers = {number for item in _items(field, text) for number in _expand(field, item, seed)}
    return tuple(sorted(numbers))


def _read_days(field: Field, text: str, seed: str) -> Days:
    """Read a day field, with its L and #."""
    weekly = field.names == _WEEKDAYS
    numbers: set[int] = set()
    nth: set[tuple[int, int]] = set()
    last_of: set[int] = set()
    last = False
    for item in _items(field, text):
        if weekly and "#" in item:
            nth.add(_nth(field, item))
        elif weekly and len(item) > 1 and item.endswith("L") and item not in field.names:
            last_of.add(_number(field, item[:-1], item) or 7)
        elif not weekly and item == "L":
            last = True
        else:
            numbers.update(_expand(field, "*" if item == "?" else item, seed))
    if weekly and 0 in numbers:
        numbers = numbers - {0} | {7}
    return Days(frozenset(numbers), last, frozenset(nth), frozenset(last_of))


def _items(field: Field, text: str) -> list[str]:
    items = text.split(",")
    if "" in items:
        raise ConfigError(f"{field.name}: {text!r} has an empty item; write values between commas")
    return items


def _nth(field: Field, item: str) -> tuple[int, int]:
    weekday, _, count = item.partition("#")
    if not count.isdecimal() or not 1 <= int(count) <= 5:
        raise ConfigError(f"{field.name}: {item} is not one of the 1st to 5th; write MON#2")
    return _number(field, weekday, item) or 7, int(count)


def _expand(field: Field, item: str, seed: str) -> Iterator[int]:
    if item.startswith("H"):
        yield from _spread(field, item, seed)
        return
    base, slash, step_text = item.partition("/")
    step = _step(field, step_text, item) if slash else 1
    low, high = _bounds(field, base, item, open_ended=bool(slash))
    yield from range(low, high + 1, step)


def _bounds(field: Field, base: str, item: str, open_ended: bool) -> tuple[int, int]:
    if base == "*":
        return field.low, field.high if field.names != _WEEKDAYS else 6
    first, dash, second = base.partition("-")
    low = _number(field, first, item)
    if not dash:
        return low, field.high if open_ended else low
    high = _number(field, second, item)
    if high == 0 and field.names == _WEEKDAYS and low > 0:
        high = 7  # FRI-SUN
    if high < low:
        raise ConfigError(f"{field.name}: {item} runs backwards; write two parts with a comma")
    return low, high


def _number(field: Field, text: str, item: str) -> int:
    if text in field.names:
        return field.names.index(text) + (1 if field.names == _MONTHS else 0)
    if text.isascii() and text.isdecimal():
        number = int(text)
        if field.low <= number <= field.high:
            return number
        raise ConfigError(f"{field.name}: {text} is not in {field.low}-{field.high}")
    if text in ("L", "?") or text.endswith("W"):
        raise ConfigError(f"{field.name}: {item} has no meaning here")
    names = f" or {field.names[0]}-{field.names[-1]}" if field.names else ""
    raise ConfigError(f"{field.name}: {text or item!r} is not in {field.low}-{field.high}{names}")


def _step(field: Field, text: str, item: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) == 0:
        raise ConfigError(f"{field.name}: {item} needs a step of 1 or more after the /")
    return int(text)


def _spread(field: Field, item: str, seed: str) -> Iterator[int]:
    match = _SPREAD.fullmatch(item)
    if match is None:
        raise ConfigError(f"{field.name}: {item} is not H, H(0-29), H/15 or H(0-29)/10")
    low, high = field.low, field.spread_high
    if match[1] is not None:
        low, high = _number(field, match[1], item), _number(field, match[2], item)
        if high < low:
            raise ConfigError(f"{field.name}: {item} runs backwards")
    if match[3] is None:
        yield low + _stable(field, seed, high - low + 1)
        return
    step = _step(field, match[3], item)
    yield from range(low + _stable(field, seed, min(step, high - low + 1)), high + 1, step)


def _stable(field: Field, seed: str, size: int) -> int:
    digest = hashlib.blake2b(f"{field.name}\0{seed}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % size
