"""The difference between stored and wanted schedules, to be shown and then applied.

Calendars are applied first, because schedules name them, then all schedules in one transaction. A run
that is cut off in between is finished by running it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from rota.app import App
from rota.core.time.calendars import NamedCalendar
from rota.core.time.interval import duration_text
from rota.core.time.schedule import Calendar, CatchUp, Cron, Every, RRule, Rule, ScheduleSpec
from rota.core.time.status import ScheduleStatus

Action = Literal["create", "update", "unchanged", "delete", "retire"]
Kind = Literal["schedule", "calendar", "workflow", "queue"]

_DURATIONS = ("jitter", "spread")


class FieldChange(msgspec.Struct, frozen=True):
    """A field before and after, as written in a file. None: its default."""

    field: str
    old: Any
    new: Any


class Change(msgspec.Struct, frozen=True):
    """A change of one schedule, calendar or workflow."""

    kind: Kind
    action: Action
    name: str
    fields: Sequence[FieldChange] = ()


class Present(msgspec.Struct, frozen=True):
    """The schedules and calendars in the database."""

    schedules: dict[str, ScheduleStatus]
    calendars: dict[str, NamedCalendar]

    @classmethod
    async def of(cls, app: App) -> Present:
        found = {status.name: status for status in await app.schedules.list()}
        return cls(found, await app.schedules.calendars())


def difference(
    present: Present,
    schedules: Mapping[str, ScheduleSpec],
    calendars: Mapping[str, NamedCalendar] | None = None,
    *,
    prune: str | None = None,
) -> list[Change]:
    """Return the changes from the stored to the wanted schedules and calendars.

    With `prune`, the other schedules of this source are deleted.
    """
    changes: list[Change] = []
    for name, calendar in (calendars or {}).items():
        known = present.calendars.get(name)
        old = None if known is None else _calendar_fields(known)
        changes.append(compare("calendar", name, old, _calendar_fields(calendar)))
    for name, spec in schedules.items():
        status = present.schedules.get(name)
        before = None
        if status is not None:  # one that can't be read differs from every other
            before = fields_of(status.spec) if status.spec else {"problem": status.problem}
        changes.append(compare("schedule", name, before, fields_of(spec)))
    for name, status in present.schedules.items():
        if prune is not None and status.source == prune and name not in schedules:
            changes.append(Change("schedule", "delete", name))
    return changes


async def apply(
    app: App,
    changes: Iterable[Change],
    schedules: Mapping[str, ScheduleSpec],
    calendars: Mapping[str, NamedCalendar] | None = None,
    *,
    source: str,
) -> None:
    """Apply changes: calendars first, then all schedules in one transaction."""
    needed = [change for change in changes if change.action != "unchanged"]
    for change in needed:
        if change.kind == "calendar":
            await app.schedules.put_calendar((calendars or {})[change.name])
    about_schedules = [change for change in needed if change.kind != "calendar"]
    await app.schedules.put_all(
        [schedules[each.name] for each in about_schedules if each.action != "delete"],
        delete=[each.name for each in about_schedules if each.action == "delete"],
        source=source,
    )


def rule_fields(rule: Rule) -> dict[str, Any]:
    """Return a rule as written in a file."""
    match rule:
        case Cron(expression):
            return {"cron": expression}
        case Every(seconds, anchor):
            return {"every": duration_text(seconds), **({"anchor": anchor} if anchor else {})}
        case Calendar(phrase):
            return {"calendar": phrase}
        case RRule(text):
            return {"rrule": text}


def fields_of(spec: ScheduleSpec) -> dict[str, Any]:
    """Return the fields of a schedule as written in a file, without defaults."""
    runs = {"workflow": spec.workflow} if spec.workflow else {"task": spec.task}
    written = {**runs, **rule_fields(spec.rule)}
    for field in msgspec.structs.fields(ScheduleSpec):
        value = getattr(spec, field.name)
        if field.name not in ("name", "task", "workflow", "rule") and value != _default(field):
            written[field.name] = _as_written(field.name, value)
    return {
        name: value for name, value in msgspec.to_builtins(written).items() if value is not None
    }


def _default(field: Any) -> Any:
    return field.default if field.default is not msgspec.NODEFAULT else {}


def _as_written(field: str, value: Any) -> Any:
    if field in _DURATIONS:
        return duration_text(value)
    if isinstance(value, CatchUp):
        return value.kind if value.within is None else {value.kind: duration_text(value.within)}
    return value


def _calendar_fields(calendar: NamedCalendar) -> dict[str, Any]:
    fields = {
        "dates": sorted(calendar.dates), "ranges": sorted(calendar.ranges),
        "weekdays": sorted(calendar.weekdays), "description": calendar.description,
    }  # fmt: skip
    return {name: value for name, value in msgspec.to_builtins(fields).items() if value}


def compare(kind: Kind, name: str, old: dict[str, Any] | None, new: dict[str, Any]) -> Change:
    """Return the change from the stored to the wanted fields. Without stored ones it is new."""
    before = old or {}
    if old == new:
        return Change(kind, "unchanged", name)
    fields = [
        FieldChange(field, before.get(field), new.get(field))
        for field in dict.fromkeys((*before, *new))
        if before.get(field) != new.get(field)
    ]
    return Change(kind, "create" if old is None else "update", name, fields)
