"""Schedules of other programs: what all readers of them share.

A reader returns a `Foreign`. What can't be imported is told with its place and the reason, and
whoever imports decides whether to go on without it. What is imported and means something else than
before is a warning.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from rota.config import NAME
from rota.core.json_values import plain_json
from rota.core.time.schedule import ScheduleSpec, compile_schedule, make_spec
from rota.errors import ConfigError, InvalidArguments
from rota.task import SubmitOptions

_DAYS = ("SU", "MO", "TU", "WE", "TH", "FR", "SA")
_DAY_NAMES = {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6, "7": 0}
_MONTH_NAMES = {
    name: number
    for number, name in enumerate(
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
        start=1,
    )
}
_ITEM = re.compile(r"(?P<low>\w+|\*)(?:-(?P<high>\w+))?(?:/(?P<step>\d+))?")


class Remark(msgspec.Struct, frozen=True):
    """A remark about something in the source, for a person."""

    place: str
    message: str


class Foreign:
    """The schedules of a source, with warnings and errors."""

    def __init__(self) -> None:
        self.schedules: dict[str, ScheduleSpec] = {}
        self.places: dict[str, str] = {}
        self.warnings: list[Remark] = []
        self.bad: list[Remark] = []

    def add(self, place: str, name: str, task: str, **settings: Any) -> None:
        """Add a schedule, or the reason why it can't be one."""
        try:
            spec = make_spec(name, task, **settings)
            compile_schedule(spec)
            # As when it is stored: what is wrong with one must not end the import of all.
            plain_json(spec.payload, "payload")
            SubmitOptions.checked(**spec.options)
            if name in self.schedules:
                raise ConfigError(f"the name {name!r} is that of {self.places[name]}, too")
        except (ConfigError, InvalidArguments) as error:
            self.refuse(place, str(error))
            return
        self.schedules[name] = spec
        self.places[name] = place

    def warn(self, place: str, message: str) -> None:
        self.warnings.append(Remark(place, message))

    def refuse(self, place: str, message: str) -> None:
        self.bad.append(Remark(place, message))


def name_of(text: str) -> str:
    """Return a name that Rota takes for one that it may not: spaces and the like become dashes."""
    plain = re.sub(r"[^A-Za-z0-9_.:-]+", "-", text).strip("-.:")[:100]
    if not NAME.fullmatch(plain):
        raise ConfigError(f"{text!r} has no letters or digits to make a name of")
    return plain


def rule_of(
    minute: str, hour: str, day: str, month: str, weekday: str, second: str = "0"
) -> dict[str, str]:
    """Return the rule of cron fields whose two day fields must *both* match, Sunday being 0.

    That is a cron expression, unless both name days: cron would take either, and so it becomes a
    recurrence rule.
    """
    if day.startswith("*") or weekday.startswith("*"):
        fields = [minute, hour, day, month, weekday]
        return {"cron": " ".join(fields if second == "0" else [second, *fields])}
    parts = {
        "BYMONTH": "" if month == "*" else _listed(month, 1, 12, _MONTH_NAMES),
        "BYMONTHDAY": _listed(day, 1, 31),
        "BYDAY": ",".join(_DAYS[each % 7] for each in expand(weekday, 0, 6, _DAY_NAMES)),
        "BYHOUR": _listed(hour, 0, 23), "BYMINUTE": _listed(minute, 0, 59),
        "BYSECOND": _listed(second, 0, 59),
    }  # fmt: skip
    return {"rrule": ";".join(["FREQ=DAILY", *(f"{n}={v}" for n, v in parts.items() if v)])}


def _listed(text: str, low: int, high: int, names: Mapping[str, int] | None = None) -> str:
    return ",".join(map(str, expand(text, low, high, names)))


def expand(text: str, low: int, high: int, names: Mapping[str, int] | None = None) -> list[int]:
    """Return the numbers that a field of a cron expression stands for."""
    found: set[int] = set()
    for item in text.lower().split(","):
        match = _ITEM.fullmatch(item.strip())
        if match is None:
            raise ConfigError(f"{text!r} is not a list of numbers, ranges and steps")
        step = int(match["step"] or 1)
        if match["low"] == "*":
            first, last = low, high
        else:
            first = _number(match["low"], names)
            last = _number(match["high"], names) if match["high"] else first
            if match["step"] and not match["high"]:
                last = high
        if step < 1 or not low <= first <= high or not low <= last <= high:
            raise ConfigError(f"{item!r} is not within {low} to {high}")
        span = [*range(first, last + 1)]
        if first > last:  # such as from Friday to Monday
            span = [*range(first, high + 1), *range(low, last + 1)]
        found.update(span[::step])
    return sorted(found)


def _number(text: str, names: Mapping[str, int] | None) -> int:
    if names and (known := names.get(text[:3])) is not None:
        return known
    if not text.isdecimal():
        raise ConfigError(f"{text!r} is neither a number nor a name that is known here")
    return int(text)


def by_name(
    function: Callable[..., Any] | None, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a call by name: Rota's payloads have no positions."""
    if not args:
        return dict(kwargs)
    if function is None:
        raise ConfigError(
            f"its arguments {list(args)!r} have no names, and the code of its task isn't known here: "
            "give them by name (kwargs)"
        )
    try:
        bound = inspect.signature(function).bind_partial(*args, **kwargs)
    except TypeError as error:
        raise ConfigError(f"its arguments don't fit its function: {error}") from None
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        else:
            named[name] = list(value) if kind is inspect.Parameter.VAR_POSITIONAL else value
    return named
