"""Calendar rules as people say them: ``last business day of the month at 18:00``.

A phrase is *days*, then *times*, then optionally ``using CALENDAR`` (its days are no business
days; without it they are Monday to Friday) and ``starting DATE``::

    every day | every weekday | every business day | every monday and thursday
    every second tuesday                        weeks are counted from `starting` (see below)
    first monday of the month                   first … fifth, 1st …, last, second last
    last business day of the quarter            of the month, quarter, year, or january, march …
    last day of february
    day 15 or next business day                 also previous, nearest; day 1 and 15 of the month
    … at 09:00 | at 9am and 17:30 | at noon | at midnight

``every second tuesday`` runs in the week of `starting`, and every second week (Monday to Sunday)
from it. Without `starting` that is the schedule's `starts`, or the week of 1970-01-05.
A day that a period doesn't have (day 31 in June, a fifth Friday) doesn't run in that period.
``nearest`` is the business day with the fewest days between, the earlier of two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time, timedelta
from typing import Literal

import msgspec

from rota.core.time.calendars import NamedCalendar
from rota.errors import ConfigError

_LONG_AGO = date(1970, 1, 5)  # a Monday
_DAY = timedelta(days=1)
_SEARCH_MONTHS = 12 * 41  # no accepted rule waits longer: a leap day that is a given weekday

Kind = Literal["every", "nth", "number", "weeks"]
Move = Literal["next", "previous", "nearest"]

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip
_ORDINALS = {"first": 1, "second": 2, "other": 2, "third": 3, "fourth": 4, "fifth": 5}
_DIRECTIONS: dict[Move, tuple[int, ...]] = {"next": (1,), "previous": (-1,), "nearest": (-1, 1)}
_PERIOD_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_FORMS = (
    "write for example 'last business day of the month at 18:00', 'first monday of the month at "
    "09:00', 'every second tuesday at 10:00', 'day 15 or next business day at 08:00'"
)


class DayRule(msgspec.Struct, frozen=True, kw_only=True):
    """Which days: all of `weekdays`, the nth of them, days by number, or every nth week."""

    kind: Kind
    weekdays: frozenset[int] = frozenset(range(7))
    business: bool = False  # only business days count
    nth: tuple[int, ...] = ()  # for "nth": from the period's start, or (negative) from its end
    numbers: tuple[int, ...] = ()
    period: int = 1  # months
    months: frozenset[int] = frozenset(range(1, 13))
    move: Move | None = None
    every: int = 1  # weeks
    anchor: date = _LONG_AGO


class CalendarRule:
    """A parsed phrase: `next_after` gives its wall times."""

    hourly = False

    def __init__(
        self, days: DayRule, times: tuple[time, ...], holidays: NamedCalendar | None = None
    ) -> None:
        self.days = days
        self.times = times
        self.holidays = holidays
        self._cache: dict[tuple[int, int], list[date]] = {}

    def next_after(self, wall: datetime) -> datetime | None:
        for day in self._days_from(wall.date()):
            for at in self.times:
                found = datetime.combine(day, at)
                if found > wall:
                    return found
        return None

    def _days_from(self, day: date) -> Iterator[date]:
        index = day.year * 12 + day.month - 1
        for months in range(_SEARCH_MONTHS):
            year, month = divmod(index + months, 12)
            if year >= 9998:
                return
            for found in self._month(year, month + 1):
                if found >= day:
                    yield found

    def _month(self, year: int, month: int) -> list[date]:
        """Return the days within a month, also those moved into it from its neighbours."""
        key = (year, month)
        if key not in self._cache:
            if len(self._cache) > 600:
                self._cache.clear()
            self._cache[key] = sorted(set(self._find(year, month)))
        return self._cache[key]

    def _find(self, year: int, month: int) -> Iterator[date]:
        if self.days.move is None:
            yield from self._unmoved(year, month)
            return
        index = year * 12 + month - 1
        for near in (index - 1, index, index + 1):
            for day in self._unmoved(near // 12, near % 12 + 1):
                moved = self._moved(day)
                if (moved.year, moved.month) == (year, month):
                    yield moved

    def _unmoved(self, year: int, month: int) -> Iterator[date]:
        rule = self.days
        if month not in rule.months:
            return
        if rule.kind == "number":
            last = _month_end(year, month).day
            yield from (date(year, month, n) for n in rule.numbers if n <= last)
        elif rule.kind == "nth":
            found = self._nth(year, month)
            yield from (day for day in found if day.month == month)
        else:
            for day in _span(date(year, month, 1), _month_end(year, month)):
                if self._counts(day) and self._in_step(day):
                    yield day

    def _nth(self, year: int, month: int) -> Iterator[date]:
        first = (month - 1) // self.days.period * self.days.period + 1
        end = _month_end(year, first + self.days.period - 1)
        days = [day for day in _span(date(year, first, 1), end) if self._counts(day)]
        for n in self.days.nth:
            if abs(n) <= len(days):
                yield days[n - 1 if n > 0 else n]

    def _counts(self, day: date) -> bool:
        return day.weekday() in self.days.weekdays and (
            not self.days.business or self.is_business_day(day)
        )

    def _in_step(self, day: date) -> bool:
        if self.days.kind != "weeks":
            return True
        anchor = self.days.anchor - _DAY * self.days.anchor.weekday()
        return (day - anchor).days // 7 % self.days.every == 0

    def is_business_day(self, day: date) -> bool:
        return day.weekday() < 5 and (self.holidays is None or not self.holidays.covers(day))

    def _moved(self, day: date) -> date:
        for distance in range(15):
            for sign in _DIRECTIONS[self.days.move or "next"]:
                near = day + _DAY * distance * sign
                if self.is_business_day(near):
                    return near
        return day  # two weeks without a business day: there is nothing to move to


def _month_end(year: int, month: int) -> date:
    return date(year + month // 12, month % 12 + 1, 1) - _DAY


def _span(first: date, last: date) -> Iterator[date]:
    for number in range((last - first).days + 1):
        yield first + _DAY * number


def parse_phrase(
    phrase: str, calendars: Mapping[str, NamedCalendar] | None = None, anchor: date | None = None
) -> CalendarRule:
    """Parse a phrase. Raises `ConfigError`, which names the words that are not understood."""
    try:
        text, holidays = _using(phrase, calendars or {})
        text = " ".join(text.lower().replace(",", " and ").split())
        text, start = _starting(text)
        days_text, times = _times(text)
        days = _days(days_text, start or anchor or _LONG_AGO)
    except ConfigError as error:
        raise ConfigError(f"calendar rule {phrase!r}: {error}") from None
    rule = CalendarRule(days, times, holidays)
    if rule.next_after(datetime.combine(start or anchor or _LONG_AGO, time())) is None:
        raise ConfigError(f"calendar rule {phrase!r} never fires: no month has such a day")
    return rule


def _using(text: str, calendars: Mapping[str, NamedCalendar]) -> tuple[str, NamedCalendar | None]:
    match = re.search(r"\s+using\s+(\S+)", text, re.IGNORECASE)
    if match is None:
        return text, None
    if match[1] not in calendars:
        known = ", ".join(sorted(calendars)) or "none"
        raise ConfigError(f"no calendar {match[1]!r}; there are: {known}")
    return text[: match.start()] + text[match.end() :], calendars[match[1]]


def _starting(text: str) -> tuple[str, date | None]:
    match = re.search(r"\s*\bstarting (\S+)", text)
    if match is None:
        return text, None
    try:
        return text[: match.start()] + text[match.end() :], date.fromisoformat(match[1])
    except ValueError:
        raise ConfigError(f"starting {match[1]}: write a date such as 2026-01-06") from None


def _times(text: str) -> tuple[str, tuple[time, ...]]:
    """Split a phrase into the words before the times, and the times."""
    words = text.split()
    found: list[time] = []
    while words:
        if words[-1] in ("at", "and") and found:
            words.pop()
        elif (at := _time(words[-1])) is not None:
            found.append(at)
            words.pop()
        else:
            break
    if not found:
        raise ConfigError(f"no time of day at the end; {_FORMS}")
    return " ".join(words), tuple(sorted(set(found)))


def _time(word: str) -> time | None:
    if word in ("noon", "midnight"):
        return time(12 if word == "noon" else 0)
    match = re.fullmatch(r"(\d{1,2})(?::(\d{2}))?(?::(\d{2}))?(am|pm)?", word)
    if match is None or (match[2] is None and match[4] is None):
        return None
    hour, half = int(match[1]), match[4]
    if half and not 1 <= hour <= 12:
        raise ConfigError(f"{word} is not a time of day; hours with am or pm are 1-12")
    if half:
        hour = hour % 12 + (12 if half == "pm" else 0)
    try:
        return time(hour, int(match[2] or 0), int(match[3] or 0))
    except ValueError:
        raise ConfigError(f"{word} is not a time of day; write 00:00 to 23:59") from None


def _days(text: str, anchor: date) -> DayRule:
    text, months, period = _period(re.sub(r"^on ", "", text))
    text, move = _move(text)
    text = re.sub(r"^the ", "", text)
    rule = _numbered(text) or _every(text, anchor) or _ordinal(text)
    if rule is None:
        raise ConfigError(f"{text!r} is not understood; {_FORMS}")
    if move and rule.kind == "every":
        raise ConfigError(f"'or {move} business day' goes with days of a month, such as 'day 15'")
    changes = {"months": months, "period": period, "move": move}
    return msgspec.structs.replace(rule, **changes)


def _period(text: str) -> tuple[str, frozenset[int], int]:
    match = re.search(r" (?:of|in) (?:(?:the|every|each) )?([a-z ]+?)(?= or |$)", text)
    if match is None:
        return text, frozenset(range(1, 13)), 1
    rest = text[: match.start()] + text[match.end() :]
    if match[1] in _PERIOD_MONTHS:
        return rest, frozenset(range(1, 13)), _PERIOD_MONTHS[match[1]]
    names = match[1].split(" and ")
    found = [_index(MONTHS, name) for name in names]
    if None in found:
        wrong = names[found.index(None)]
        raise ConfigError(f"{wrong!r} is not a month's name, nor month, quarter or year")
    return rest, frozenset(n + 1 for n in found if n is not None), 1


def _move(text: str) -> tuple[str, Move | None]:
    match = re.search(r" or (?:the )?(.+)$", text)
    if match is None:
        return text, None
    for move in _DIRECTIONS:
        if match[1] == f"{move} business day":
            return text[: match.start()], move
    raise ConfigError(f"'or {match[1]}' is not understood; write 'or next business day'")


def _numbered(text: str) -> DayRule | None:
    if not re.fullmatch(r"days? \d+(?:(?: and)+ \d+)*", text):
        return None
    numbers = [int(number) for number in re.findall(r"\d+", text)]
    if wrong := [n for n in numbers if not 1 <= n <= 31]:
        raise ConfigError(f"day {wrong[0]} is not in 1-31")
    return DayRule(kind="number", numbers=tuple(sorted(set(numbers))))


def _every(text: str, anchor: date) -> DayRule | None:
    """Read ``every …``: all such days, or those of every nth week."""
    match = re.fullmatch(r"(?:every|each) (.+)", text)
    if match is None:
        return None
    words = match[1]
    weeks = _ordinal_number(words.split()[0])
    if weeks is not None:
        days = _weekdays(words.partition(" ")[2])
        return DayRule(kind="weeks", weekdays=days, every=weeks, anchor=anchor)
    if words in ("weekday", "business day"):
        return DayRule(kind="every", business=True)
    return DayRule(kind="every", weekdays=_weekdays(words))


def _ordinal(text: str) -> DayRule | None:
    words = text.split()
    position: list[int] = []
    while words and (number := _ordinal_number(words[0])) is not None:
        position.append(number)
        words = words[1:]
    last = words[:1] == ["last"] or words[:2] == ["to", "last"]
    if last:
        words = words[2:] if words[0] == "to" else words[1:]
    if len(position) > 1 or not (position or last):
        return None
    n = position[0] if position else 1
    name = " ".join(words)
    if name in ("weekday", "business day"):
        return DayRule(kind="nth", nth=(-n if last else n,), business=True)
    return DayRule(kind="nth", nth=(-n if last else n,), weekdays=_weekdays(name))


def _ordinal_number(word: str) -> int | None:
    match = re.fullmatch(r"(\d+)(?:st|nd|rd|th)", word)
    if match:
        return int(match[1]) or None
    return _ORDINALS.get(word)


def _weekdays(words: str) -> frozenset[int]:
    if words == "day":
        return frozenset(range(7))
    names = words.split(" and ")
    found = [_index(WEEKDAYS, name) for name in names]
    if None in found:
        raise ConfigError(f"{names[found.index(None)]!r} is not a weekday's name; {_FORMS}")
    return frozenset(n for n in found if n is not None)


def _index(names: tuple[str, ...], text: str) -> int | None:
    """Find a name by itself, its plural, or its first three letters."""
    for index, name in enumerate(names):
        if text in (name, name + "s", name[:3]):
            return index
    return None
