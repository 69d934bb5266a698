"""Days as people mean them: the last business day of a quarter, every second Tuesday."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from typing import Literal

import msgspec

from rota.core.time.calendars import NamedCalendar

LONG_AGO = date(1970, 1, 5)  # a Monday
_DAY = timedelta(days=1)
_SEARCH_MONTHS = 12 * 41  # no accepted rule waits longer: a leap day that is a given weekday

Kind = Literal["every", "nth", "number", "weeks"]
Move = Literal["next", "previous", "nearest"]


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
    anchor: date = LONG_AGO


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
        """The days within a month, also those moved into it from its neighbours."""
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
            for sign in {"next": (1,), "previous": (-1,), "nearest": (-1, 1)}[
                self.days.move or "next"
            ]:
                near = day + _DAY * distance * sign
                if self.is_business_day(near):
                    return near
        return day  # two weeks without a business day: there is nothing to move to


def _month_end(year: int, month: int) -> date:
    return date(year + month // 12, month % 12 + 1, 1) - _DAY


def _span(first: date, last: date) -> Iterator[date]:
    for number in range((last - first).days + 1):
        yield first + _DAY * number
