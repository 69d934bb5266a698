"""Schedules and calendars in YAML.

    schedules:
      nightly-report:
        task: report_stock
        cron: "30 2 * * *"
        tz: Europe/Paris
        catch_up: {latest: 1h}
      nightly-orders: {workflow: orders, cron: "@daily"}
    calendars:
      company-holidays: {dates: [2026-12-24], weekdays: [sat, sun]}

A file is read as a whole: all its errors are reported at once, each with its line and field, and a file
with an error is not used at all. The rules of all schedules have been compiled, so that they will fire.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from rota.core.payloads import Limits, encode_payload
from rota.core.time.calendars import NamedCalendar, calendar_from_holidays, calendar_from_ics
from rota.core.time.schedule import OPTIONS, CatchUp, ScheduleSpec, compile_schedule, make_spec
from rota.errors import ConfigError, SubmitError
from rota.files.yaml_nodes import Place, Problems, Source, Value, read_document
from rota.files.yaml_values import boolean, converted, duration, moment, names, once, option, whole

T = TypeVar("T")

RULES = ("cron", "every", "calendar", "rrule")
_HOLIDAY_YEARS = range(2020, 2051)  # fixed, so that a file means the same next year
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DEFAULT_LIMITS = Limits(1_000_000, 64)
# The beginning of messages about rules, which quote the rule.
_RULE_PREFIX = re.compile(r"(cron|calendar rule|rrule) (?:'.*?'|\".*?\")(?::)? (.*)", re.DOTALL)


class Wanted(msgspec.Struct, frozen=True):
    """The schedules and calendars of a set of files, with their positions."""

    schedules: dict[str, ScheduleSpec]
    calendars: dict[str, NamedCalendar]
    places: dict[str, Place]


def read_schedules(
    sources: Iterable[Source],
    known: Mapping[str, NamedCalendar] | None = None,
    limits: Limits = _DEFAULT_LIMITS,
) -> Wanted:
    """Read files. A `ConfigError` has a line for each error in any of them.

    Args:
        sources: the files.
        known: calendars that are already in the database.
        limits: of a payload.
    """
    problems = Problems()
    sections: dict[str, list[tuple[Source, str, Value]]] = {"schedules": [], "calendars": []}
    for source in sources:
        root = read_document(source, problems)
        top = root.entries(sections) if root is not None else {}
        for section in sections:
            if section in top:
                named = top[section].entries().items()
                sections[section].extend((source, name, value) for name, value in named)
    wanted = Wanted({}, {}, {})
    for source, name, value in once(sections["calendars"]):
        wanted.calendars[name] = _calendar(name, value, source.folder)
    calendars = {**(known or {}), **wanted.calendars}
    for _, name, value in once(sections["schedules"]):
        spec = _Reader(name, value, calendars, limits).read()
        wanted.places[name] = (value.key or value).place
        if spec is not None:
            wanted.schedules[name] = spec
    problems.raise_if_any()
    return wanted


# -- values


def _catch_up(value: Value) -> CatchUp | None:
    if not value.is_mapping:
        match value.text():
            case None:
                return None
            case ("none" | "latest" | "all") as kind:
                return CatchUp(kind)
            case other:
                raise ConfigError(f"{other!r} is none of none, latest, all, {{latest: 1h}}")
    entries = value.entries(("latest", "all"))
    if len(entries) != 1:
        raise ConfigError("write {latest: 1h} or {all: 6h}")
    [(name, within)] = entries.items()
    seconds = converted(within, duration)
    return None if seconds is None else CatchUp("latest" if name == "latest" else "all", seconds)


def _options(value: Value) -> dict[str, Any] | None:
    chosen: dict[str, Any] = {}
    for name, inner in value.entries(OPTIONS).items():
        if (found := option(inner, name)) is not None:
            chosen[name] = found
    return chosen


_READERS: dict[str, Callable[[Value], Any]] = {
    "task": Value.text, "workflow": Value.text, "cron": Value.text, "every": duration,
    "calendar": Value.text, "rrule": Value.text,
    "anchor": moment, "tz": Value.text, "gap": Value.text, "fold": Value.text, "payload": Value.data,
    "options": _options, "overlap": Value.text, "max_queued": whole, "drop": Value.text,
    "max_running": whole, "catch_up": _catch_up, "starts": moment, "ends": moment,
    "max_occurrences": whole, "jitter": duration, "spread": duration, "exclude": names,
    "include": names, "description": Value.text, "tags": names, "paused": boolean,
}  # fmt: skip
FIELDS = tuple(_READERS)
_NEEDED = ("task", "workflow", *RULES)  # those can't be left empty


# -- a schedule


class _Reader:
    """Reads one schedule of a file."""

    def __init__(
        self, name: str, value: Value, calendars: Mapping[str, NamedCalendar], limits: Limits
    ) -> None:
        self._name = name
        self._whole = value.key or value
        self._fields = value.entries(FIELDS)
        self._is_mapping = value.is_mapping
        self._calendars = calendars
        self._limits = limits

    def read(self) -> ScheduleSpec | None:
        if not self._is_mapping:
            self._whole.report("must be a mapping with its task and its rule")
            return None
        given = {
            name: converted(value, _READERS[name])
            for name, value in self._fields.items()
            if name in _NEEDED or (name in _READERS and not value.is_null)
        }
        self._check_parts(given)
        found = {name: value for name, value in given.items() if value is not None}
        if "starts" in given and "starts" not in found:
            found.pop("max_occurrences", None)
        spec = self._spec({"name": self._name, **found})
        if spec is not None and any(rule in found for rule in RULES):
            try:
                compile_schedule(spec, self._calendars)
            except ConfigError as error:
                self._report(error)
        return spec

    def _check_parts(self, given: dict[str, Any]) -> None:
        if "task" not in given and "workflow" not in given:
            self._whole.report("task is missing: the name of the task to run, or a workflow")
        elif "task" in given and "workflow" in given:
            self._fields["workflow"].report("there is task already; a schedule runs one of them")
            given["workflow"] = None
        rules = [rule for rule in RULES if rule in given]
        if not rules:
            self._whole.report(f"has no rule: write one of {', '.join(RULES)}")
        for extra in rules[1:]:
            self._fields[extra].report(f"there is {rules[0]} already; a schedule has one rule")
            given[extra] = None
        if "anchor" in given and "every" not in rules:
            self._fields["anchor"].report("goes with every")
        payload = given.get("payload")
        if payload is not None and not isinstance(payload, dict):
            self._fields["payload"].report("must be a mapping of argument names and values")
        elif payload is not None:
            try:
                encode_payload(payload, self._limits, self._name)
            except SubmitError as error:
                self._fields["payload"].report(str(error).removeprefix(f"task {self._name!r}: "))

    def _spec(self, parts: dict[str, Any]) -> ScheduleSpec | None:
        """Make the schedule. One wrong field after the other is left out, so that each is reported."""
        while True:
            complete = {"name": "placeholder", **parts}
            if "workflow" not in parts:
                complete.setdefault("task", "?")
            if not any(rule in parts for rule in RULES):
                complete["cron"] = "0 0 * * *"
                complete.pop("anchor", None)
            try:
                return make_spec(**complete)
            except ConfigError as error:
                field = self._report(error)
                if field not in parts:
                    return None
                del parts[field]

    def _report(self, error: ConfigError) -> str:
        """Report an error at its field, and return the field's name."""
        text = str(error)
        if rule := _RULE_PREFIX.fullmatch(text):
            field, message = rule[1].partition(" ")[0], rule[2]
        else:
            head, _, message = text.partition(": ")
            field, _, part = head.partition(".")
            message = f"{part}: {message}" if part else message
        if field in self._fields:
            self._fields[field].report(message)
        else:
            self._whole.report(message if field == "name" else text)
        return field


# -- a calendar


def _calendar(name: str, value: Value, folder: Path) -> NamedCalendar:
    """Return a calendar with the days of all its parts. Parts with errors are reported and left out."""
    entries = value.entries(("dates", "ranges", "weekdays", "ics", "holidays", "description"))
    made = list(_made(name, entries, folder))
    dates = frozenset(_each(entries, "dates", _date)).union(*(part.dates for part in made))
    ranges = {*_each(entries, "ranges", _range), *(r for part in made for r in part.ranges)}
    description = converted(entries["description"], Value.text) if "description" in entries else ""
    return NamedCalendar(
        name=name,
        dates=dates,
        ranges=tuple(sorted(ranges)),
        weekdays=frozenset(_each(entries, "weekdays", _weekday)),
        description=description or "",
    )


def _each(entries: dict[str, Value], name: str, read: Callable[[Value], T | None]) -> list[T]:
    """Return the values of a list, without those that have errors."""
    items = entries[name].items() if name in entries else ()
    found = [converted(item, read) for item in items]
    return [value for value in found if value is not None]


def _made(name: str, entries: dict[str, Value], folder: Path) -> Iterable[NamedCalendar]:
    yield from _each(entries, "ics", lambda value: _from_ics(name, value, folder))
    if "holidays" in entries:
        made = converted(entries["holidays"], lambda value: _from_holidays(name, value))
        if made is not None:
            yield made


def _from_ics(name: str, value: Value, folder: Path) -> NamedCalendar | None:
    path = value.text()
    if path is None:
        return None
    source = Source.read(folder / path)
    try:
        return calendar_from_ics(name, source.text())
    except ConfigError as error:
        raise ConfigError(f"{path}: {_without_name(name, error)}") from None


def _from_holidays(name: str, value: Value) -> NamedCalendar | None:
    years: set[int] = set()
    subdivision: str | None = None
    if value.is_mapping:
        parts = value.entries(("country", "subdivision", "years"))
        if "country" not in parts:
            raise ConfigError("country is missing, such as DE")
        country = parts["country"].text()
        subdivision = parts["subdivision"].text() if "subdivision" in parts else None
        years.update(_each(parts, "years", whole))
    else:
        country = value.text()
    if country is None:
        return None
    try:
        return calendar_from_holidays(name, country, years or _HOLIDAY_YEARS, subdivision)
    except ConfigError as error:
        raise ConfigError(_without_name(name, error)) from None


def _without_name(name: str, error: ConfigError) -> str:
    return str(error).removeprefix(f"calendar {name!r}: ")


def _date(value: Value) -> date | None:
    text = value.text()
    try:
        return None if text is None else date.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{text!r} is not a day; write 2026-12-24") from None


def _range(value: Value) -> tuple[date, date] | None:
    days = [converted(each, _date) for each in value.items()]
    if len(days) != 2:
        raise ConfigError("write a first and a last day: [2026-12-28, 2027-01-01]")
    first, last = days
    if first is None or last is None:
        return None
    if last < first:
        raise ConfigError(f"{first} to {last} runs backwards")
    return first, last


def _weekday(value: Value) -> int | None:
    text = value.text()
    if text is None:
        return None
    for number, day in enumerate(_WEEKDAYS):
        if len(text) >= 3 and day.startswith(text.lower()):
            return number
    known = ", ".join(day[:3] for day in _WEEKDAYS)
    raise ConfigError(f"{text!r} is not a weekday; there are {known}")
