"""Named calendars: the days on which a schedule doesn't run, or the only ones on which it does.

A calendar is a set of days: single dates, ranges (both ends included), weekdays (Monday is 0).
It can be read from the text of an ``.ics`` file, or made of a country's public holidays.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Collection, Iterator
from datetime import date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from rota.core.time.rrule import parse_rrule
from rota.errors import ConfigError

_DAY = timedelta(days=1)
_EXPAND_UNTIL = date(2100, 12, 31)  # how far yearly events of an .ics file are written out
_MAX_EVENTS = 10_000


class NamedCalendar(msgspec.Struct, frozen=True, kw_only=True):
    """A set of days with a name."""

    name: str
    dates: frozenset[date] = frozenset()
    ranges: tuple[tuple[date, date], ...] = ()
    weekdays: frozenset[int] = frozenset()
    description: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError("calendar: name must not be empty")
        if wrong := [day for day in self.weekdays if not 0 <= day <= 6]:
            raise ConfigError(
                f"calendar {self.name!r}: weekdays: {wrong[0]} is not in 0-6, Mon-Sun"
            )
        for first, last in self.ranges:
            if last < first:
                raise ConfigError(
                    f"calendar {self.name!r}: ranges: {first} to {last} runs backwards"
                )

    def covers(self, day: date) -> bool:
        return (
            day in self.dates
            or day.weekday() in self.weekdays
            or any(first <= day <= last for first, last in self.ranges)
        )


def calendar_from_holidays(
    name: str, country: str, years: Collection[int], subdivision: str | None = None
) -> NamedCalendar:
    """Make a calendar of the public holidays of a country. Needs the extra ``rota[holidays]``."""
    try:
        holidays: Any = importlib.import_module("holidays")
    except ImportError:
        raise ConfigError(
            f"calendar {name!r}: holiday sets need the holidays package: pip install 'rota[holidays]'"
        ) from None
    try:
        found = holidays.country_holidays(country, subdiv=subdivision, years=sorted(years))
    except NotImplementedError as error:
        raise ConfigError(f"calendar {name!r}: no holidays of {country!r}: {error}") from None
    where = country if subdivision is None else f"{country}-{subdivision}"
    return NamedCalendar(
        name=name, dates=frozenset(found), description=f"public holidays of {where}"
    )


def calendar_from_ics(name: str, text: str) -> NamedCalendar:
    """Make a calendar of the all-day events of an iCalendar text; yearly ones are written out to 2100.

    An event with a time of day, or with a rule that isn't yearly, is refused: leaving it out
    silently would run a schedule on a day that it shouldn't.
    """
    unfolded = re.sub(r"\r?\n[ \t]", "", text)
    events = list(_events(unfolded.splitlines()))
    if not events:
        raise ConfigError(f"calendar {name!r}: the .ics text has no VEVENT")
    if len(events) > _MAX_EVENTS:
        raise ConfigError(f"calendar {name!r}: more than {_MAX_EVENTS} events")
    ranges: set[tuple[date, date]] = set()
    for event in events:
        ranges.update(_days_of_event(name, event))
    single = frozenset(first for first, last in ranges if first == last)
    spans = tuple(sorted((first, last) for first, last in ranges if first != last))
    return NamedCalendar(name=name, dates=single, ranges=spans)


def _events(lines: list[str]) -> Iterator[dict[str, str]]:
    """Iterate over the properties of each VEVENT by name, without those of nested components."""
    event: dict[str, str] | None = None
    depth = 0
    for line in lines:
        head, _, value = line.partition(":")
        key = head.partition(";")[0].upper()
        if key == "BEGIN" and value.strip().upper() == "VEVENT":
            event, depth = {}, 0
        elif event is not None and key == "END" and value.strip().upper() == "VEVENT":
            yield event
            event = None
        elif key in ("BEGIN", "END"):
            depth += 1 if key == "BEGIN" else -1
        elif event is not None and depth == 0:
            event[key] = value.strip()


def _days_of_event(name: str, event: dict[str, str]) -> Iterator[tuple[date, date]]:
    about = f"calendar {name!r}: event {event.get('SUMMARY', event.get('UID', '?'))!r}"
    if "DTSTART" not in event:
        raise ConfigError(f"{about} has no DTSTART")
    first = _all_day(about, "DTSTART", event["DTSTART"])
    length = _length(about, event, first)
    starts = [first]
    if "RRULE" in event:
        starts = _yearly(about, event["RRULE"], first)
    removed = {_all_day(about, "EXDATE", day) for day in event.get("EXDATE", "").split(",") if day}
    for start in starts:
        if start not in removed:
            yield start, start + length - _DAY


def _length(about: str, event: dict[str, str], first: date) -> timedelta:
    if "DTEND" in event:  # exclusive, as RFC 5545 has it
        length = _all_day(about, "DTEND", event["DTEND"]) - first
    elif match := re.fullmatch(r"P(?:(\d+)W)?(?:(\d+)D)?", event.get("DURATION", "P1D")):
        length = timedelta(weeks=int(match[1] or 0), days=int(match[2] or 0))
    else:
        raise ConfigError(f"{about}: DURATION {event['DURATION']} is not in whole days")
    if length < timedelta():
        raise ConfigError(f"{about} ends before it starts")
    return max(length, _DAY)


def _all_day(about: str, key: str, value: str) -> date:
    if not re.fullmatch(r"\d{8}", value):
        raise ConfigError(
            f"{about}: {key} {value} is not a day; only all-day events make a calendar"
        )
    try:
        return date(int(value[:4]), int(value[4:6]), int(value[6:]))
    except ValueError as error:
        raise ConfigError(f"{about}: {key} {value}: {error}") from None


def _yearly(about: str, text: str, first: date) -> list[date]:
    if "FREQ=YEARLY" not in text.upper().split(";"):
        raise ConfigError(f"{about}: RRULE {text}: only yearly rules are understood")
    try:
        rule = parse_rrule(text, ZoneInfo("UTC"), datetime.combine(first, time()))
    except ConfigError as error:
        raise ConfigError(f"{about}: {error}") from None
    found: list[date] = []
    wall = rule.next_after(rule.start - _DAY)
    while wall is not None and wall.date() <= _EXPAND_UNTIL:
        found.append(wall.date())
        wall = rule.next_after(wall)
    return found
