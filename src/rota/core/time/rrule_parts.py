"""The parts of an RRULE, and the days of a period that match them."""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta

import msgspec

from rota.errors import ConfigError

FREQUENCIES = ("YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY", "SECONDLY")
WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_SUB_DAILY = FREQUENCIES[4:]
_DATES = ("BYWEEKNO", "BYYEARDAY", "BYMONTHDAY", "BYDAY")
_RANGES = {
    "BYSECOND": (0, 59, False),
    "BYMINUTE": (0, 59, False),
    "BYHOUR": (0, 23, False),
    "BYMONTH": (1, 12, False),
    "BYMONTHDAY": (1, 31, True),
    "BYYEARDAY": (1, 366, True),
    "BYWEEKNO": (1, 53, True),
    "BYSETPOS": (1, 366, True),
}
_KEYS = ("FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYDAY", *_RANGES)
_DAY = timedelta(days=1)
_MAX_TIMES = 288
_MAX_TIMES_OF_SET = 12  # with BYSETPOS, which takes all times of a period at once


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """A rule's parts, with what RFC 5545 takes from DTSTART filled in."""

    freq: str
    interval: int
    week_start: int
    times: tuple[time, ...]
    months: frozenset[int] = frozenset()
    month_days: frozenset[int] = frozenset()
    year_days: frozenset[int] = frozenset()
    weeks: frozenset[int] = frozenset()
    weekdays: frozenset[int] = frozenset()
    nth_weekdays: frozenset[tuple[int, int]] = frozenset()  # (weekday, n), n from the end if < 0
    set_positions: frozenset[int] = frozenset()


class DayFilter:
    """Finds the matching days of a period. `looked` is how many days the last search took."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.looked = 0

    def days(self, first: date, last: date, since: date) -> Iterator[date]:
        """Iterate over those of a period from `since` on."""
        candidates = [day for day in self._candidates(first, last) if day >= since]
        self.looked = len(candidates)
        return (day for day in candidates if self._matches(day))

    def _candidates(self, first: date, last: date) -> list[date]:
        """Return the days to check: few where the parts name them, as rare rules take many years."""
        parts = self.parts
        if parts.year_days:
            size = (last - first).days + 1
            numbers = {n - 1 if n > 0 else size + n for n in parts.year_days}
            return [first + _DAY * n for n in sorted(numbers) if 0 <= n < size]
        if parts.freq in ("YEARLY", "MONTHLY") and (parts.months or parts.month_days):
            return [
                date(first.year, month, number)
                for month in range(first.month, last.month + 1)
                if not parts.months or month in parts.months
                for number in self._numbers(calendar.monthrange(first.year, month)[1])
            ]
        asked = parts.weekdays | {weekday for weekday, _ in parts.nth_weekdays}
        if asked:
            offsets = {(weekday - first.weekday()) % 7 for weekday in asked}
            numbers = {n + 7 * week for n in offsets for week in range(54)}
            size = (last - first).days + 1
            return [first + _DAY * n for n in sorted(numbers) if n < size]
        return [first + _DAY * n for n in range((last - first).days + 1)]

    def _numbers(self, length: int) -> list[int]:
        if not self.parts.month_days:
            return list(range(1, length + 1))
        numbers = {n if n > 0 else length + 1 + n for n in self.parts.month_days}
        return sorted(n for n in numbers if 1 <= n <= length)

    def _matches(self, day: date) -> bool:
        parts = self.parts
        return (
            (not parts.months or day.month in parts.months)
            and (not parts.month_days or _is_among(parts.month_days, *_number_in_month(day)))
            and (not parts.year_days or _is_among(parts.year_days, *_number_in_year(day)))
            and (not (parts.weekdays or parts.nth_weekdays) or self._in_week(day))
            and (not parts.weeks or _is_among(parts.weeks, *_number_of_week(day)))
        )

    def _in_week(self, day: date) -> bool:
        weekday = day.weekday()
        if weekday in self.parts.weekdays:
            return True
        if not self.parts.nth_weekdays:
            return False
        within_month = self.parts.freq == "MONTHLY" or self.parts.months
        number, length = _number_in_month(day) if within_month else _number_in_year(day)
        from_start, from_end = (number + 6) // 7, -((length - number) // 7 + 1)
        asked = self.parts.nth_weekdays
        return (weekday, from_start) in asked or (weekday, from_end) in asked


def _is_among(wanted: frozenset[int], number: int, length: int) -> bool:
    """Return whether a number is wanted, counted from the start or (negative) from the end."""
    return number in wanted or number - length - 1 in wanted


def _number_in_month(day: date) -> tuple[int, int]:
    """Return the day's number, and the month's length."""
    return day.day, calendar.monthrange(day.year, day.month)[1]


def _number_of_week(day: date) -> tuple[int, int]:
    """Return the number of the day's week, and how many weeks its year has."""
    year, week, _ = day.isocalendar()
    return week, date(year, 12, 28).isocalendar().week  # always in the last week of its year


def _number_in_year(day: date) -> tuple[int, int]:
    """Return the day's number, and the year's length."""
    before = date(day.year, 1, 1).toordinal() - 1
    return day.toordinal() - before, 366 if calendar.isleap(day.year) else 365


def read_parts(rule: str, start: datetime) -> tuple[Parts, int | None, str | None]:
    """Read the parts, COUNT, and the text of UNTIL."""
    given = _split(rule)
    _refuse(given)
    numbers = {key: _numbers(key, given[key]) for key in _RANGES if key in given}
    weekdays, nth = _weekdays(given)
    _fill(given, numbers, start)
    if given["FREQ"] == "WEEKLY" and not any(key in given for key in _DATES):
        weekdays = frozenset({start.weekday()})
    parts = Parts(
        freq=given["FREQ"],
        interval=int(given.get("INTERVAL", "1")),
        week_start=WEEKDAYS.index(given.get("WKST", "MO")),
        times=_times(numbers, start),
        months=numbers.get("BYMONTH", frozenset()),
        month_days=numbers.get("BYMONTHDAY", frozenset()),
        year_days=numbers.get("BYYEARDAY", frozenset()),
        weeks=numbers.get("BYWEEKNO", frozenset()),
        weekdays=weekdays,
        nth_weekdays=nth,
        set_positions=numbers.get("BYSETPOS", frozenset()),
    )
    return parts, int(given["COUNT"]) if "COUNT" in given else None, given.get("UNTIL")


def _split(rule: str) -> dict[str, str]:
    given: dict[str, str] = {}
    for item in filter(None, rule.split(";")):
        key, equals, value = item.partition("=")
        if key not in _KEYS or not equals or not value:
            raise ConfigError(f"{item} is not understood; the parts are {', '.join(_KEYS)}")
        if key in given:
            raise ConfigError(f"{key} is given twice")
        given[key] = value
    if given.get("FREQ") not in FREQUENCIES:
        raise ConfigError(f"FREQ must be one of {', '.join(FREQUENCIES)}")
    for key in ("INTERVAL", "COUNT"):
        if key in given and not re.fullmatch(r"[1-9][0-9]{0,5}", given[key]):
            raise ConfigError(f"{key}: {given[key]} is not in 1-999999")
    if "COUNT" in given and "UNTIL" in given:
        raise ConfigError("COUNT and UNTIL exclude each other")
    if given.get("WKST", "MO") not in WEEKDAYS:
        raise ConfigError(f"WKST: {given['WKST']} is not one of {', '.join(WEEKDAYS)}")
    return given


def _refuse(given: dict[str, str]) -> None:
    """Refuse what can't be searched in bounded time, or has no meaning."""
    freq, interval = given["FREQ"], int(given.get("INTERVAL", "1"))
    filters = [key for key in given if key.startswith("BY")]
    if freq in _SUB_DAILY and filters:
        raise ConfigError(
            f"FREQ={freq} with {filters[0]} may search without bound; "
            "write a cron rule, or FREQ=DAILY with BYHOUR and BYMINUTE"
        )
    if freq == "DAILY" and interval > 1 and "BYMONTHDAY" in given:
        raise ConfigError(
            f"FREQ=DAILY;INTERVAL={interval} with BYMONTHDAY may search without bound"
        )
    if freq != "YEARLY" and "BYYEARDAY" in given:
        raise ConfigError("BYYEARDAY needs FREQ=YEARLY")
    if freq == "DAILY" and "BYSETPOS" in given:
        raise ConfigError("BYSETPOS needs FREQ=WEEKLY, MONTHLY or YEARLY")
    if "BYSETPOS" in given and len(filters) == 1:
        raise ConfigError("BYSETPOS needs another BY part to choose from")
    if "BYWEEKNO" in given and (freq != "YEARLY" or given.get("WKST", "MO") != "MO"):
        raise ConfigError("BYWEEKNO needs FREQ=YEARLY, and weeks that start on Monday")
    if "BYMONTHDAY" in given and freq == "WEEKLY":
        raise ConfigError("BYMONTHDAY has no meaning with FREQ=WEEKLY")


def _numbers(key: str, text: str) -> frozenset[int]:
    low, high, signed = _RANGES[key]
    found = set()
    for item in text.split(","):
        if not re.fullmatch(r"[+-]?\d{1,4}", item):
            raise ConfigError(f"{key}: {item!r} is not a number")
        number = int(item)
        if not low <= (abs(number) if signed else number) <= high:
            also = f" or -{high} to -{low}" if signed else ""
            raise ConfigError(f"{key}: {item} is not in {low}-{high}{also}")
        found.add(number)
    return frozenset(found)


def _weekdays(given: dict[str, str]) -> tuple[frozenset[int], frozenset[tuple[int, int]]]:
    plain: set[int] = set()
    nth: set[tuple[int, int]] = set()
    for item in given["BYDAY"].split(",") if "BYDAY" in given else ():
        match = re.fullmatch(r"([+-]?\d{1,2})?(MO|TU|WE|TH|FR|SA|SU)", item)
        if match is None or (match[1] and not 1 <= abs(int(match[1])) <= 53):
            raise ConfigError(f"BYDAY: {item} is not a weekday such as MO, 2MO or -1FR")
        if match[1]:
            nth.add((WEEKDAYS.index(match[2]), int(match[1])))
        else:
            plain.add(WEEKDAYS.index(match[2]))
    if nth and (given["FREQ"] not in ("MONTHLY", "YEARLY") or "BYWEEKNO" in given):
        raise ConfigError("BYDAY with a number needs FREQ=MONTHLY or YEARLY, and no BYWEEKNO")
    return frozenset(plain), frozenset(nth)


def _fill(given: dict[str, str], numbers: dict[str, frozenset[int]], start: datetime) -> None:
    """Take from DTSTART what the rule leaves open."""
    freq, dated = given["FREQ"], any(key in given for key in _DATES)
    sparse = "BYMONTH" in given or "BYMONTHDAY" in given
    if freq == "DAILY" and given.get("INTERVAL", "1") == "1" and sparse:
        given["FREQ"] = "YEARLY"  # the same days, found a year at a time
    elif not dated and freq in ("YEARLY", "MONTHLY"):
        if freq == "YEARLY":
            numbers.setdefault("BYMONTH", frozenset({start.month}))
        numbers["BYMONTHDAY"] = frozenset({start.day})


def _times(numbers: dict[str, frozenset[int]], start: datetime) -> tuple[time, ...]:
    hours = numbers.get("BYHOUR", {start.hour})
    minutes = numbers.get("BYMINUTE", {start.minute})
    seconds = numbers.get("BYSECOND", {start.second})
    count, most = len(hours) * len(minutes) * len(seconds), _MAX_TIMES
    if "BYSETPOS" in numbers:
        most = _MAX_TIMES_OF_SET
    if count > most:
        raise ConfigError(f"{count} times a day; {most} at most, or write a cron rule")
    return tuple(
        time(hour, minute, second)
        for hour in sorted(hours)
        for minute in sorted(minutes)
        for second in sorted(seconds)
    )
