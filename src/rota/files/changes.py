"""From what is there to what is wanted: the difference, to be shown, and then to be made.

The difference is decided purely, then applied: calendars first, because schedules name them, and
deletions last. Each schedule changes in a transaction of its own; a run that is cut off is finished
by running it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from rota.app import App
from rota.core.time.calendars import NamedCalendar
from rota.core.time.interval import duration_text
from rota.core.time.schedule import Calendar, CatchUp, Cron, Every, RRule, ScheduleSpec
from rota.operations.ledger import ScheduleStatus
from rota.store.schedules import ScheduleStore

Action = Literal["create", "update", "unchanged", "delete"]

_DURATIONS = ("jitter", "spread")


class FieldChange(msgspec.Struct, frozen=True):
    """A field before and after, as a file would say it. None: its default."""

    field: str
    old: Any
    new: Any


class Change(msgspec.Struct, frozen=True):
    """A change of one schedule or calendar."""

    kind: Literal["schedule", "calendar"]
    action: Action
    name: str
    fields: Sequence[FieldChange] = ()


class Present(msgspec.Struct, frozen=True):
    """The schedules and calendars in the database."""

    schedules: dict[str, ScheduleStatus]
    calendars: dict[str, NamedCalendar]

    @classmethod
    async def of(cls, app: App) -> Present:
        store = ScheduleStore((await app.store()).database)
        calendars = (await store.calendars()).get(app.settings.namespace, {})
        return cls({status.name: status for status in await app.schedules.list()}, calendars)


def difference(
    present: Present,
    schedules: Mapping[str, ScheduleSpec],
    calendars: Mapping[str, NamedCalendar] | None = None,
    *,
    prune: str | None = None,
) -> list[Change]:
    """Return what would change.

    Args:
        present: what is there.
        schedules: what shall be there.
        calendars: the same.
        prune: delete the other schedules of this source.
    """
    changes = [
        _change("calendar", name, _calendar_fields(present.calendars.get(name)),
                _calendar_fields(calendar))
        for name, calendar in (calendars or {}).items()
    ]  # fmt: skip
    for name, spec in schedules.items():
        status = present.schedules.get(name)
        before = None if status is None else _fields_before(status)
        changes.append(_change("schedule", name, before, fields_of(spec)))
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
    """Make the difference: calendars first, then all schedules in one transaction."""
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


def _fields_before(status: ScheduleStatus) -> dict[str, Any]:
    """One that can't be read differs from everything."""
    return fields_of(status.spec) if status.spec is not None else {"problem": status.problem}


def fields_of(spec: ScheduleSpec) -> dict[str, Any]:
    """A schedule as a file would say it: without what is the default."""
    rule: dict[str, Any]
    match spec.rule:
        case Cron(expression):
            rule = {"cron": expression}
        case Every(seconds, anchor):
            rule = {"every": duration_text(seconds), "anchor": anchor}
        case Calendar(phrase):
            rule = {"calendar": phrase}
        case RRule(text):
            rule = {"rrule": text}
    said = {"task": spec.task, **rule}
    for field in msgspec.structs.fields(ScheduleSpec):
        value = getattr(spec, field.name)
        if field.name not in ("name", "task", "rule") and value != _default(field):
            said[field.name] = _as_written(field.name, value)
    return {name: value for name, value in msgspec.to_builtins(said).items() if value is not None}


def _default(field: Any) -> Any:
    return field.default if field.default is not msgspec.NODEFAULT else {}


def _as_written(field: str, value: Any) -> Any:
    if field in _DURATIONS:
        return duration_text(value)
    if isinstance(value, CatchUp):
        return value.kind if value.within is None else {value.kind: duration_text(value.within)}
    return value


def _calendar_fields(calendar: NamedCalendar | None) -> dict[str, Any] | None:
    if calendar is None:
        return None
    fields = {
        "dates": sorted(calendar.dates),
        "ranges": sorted(calendar.ranges),
        "weekdays": sorted(calendar.weekdays),
        "description": calendar.description,
    }
    return {name: value for name, value in msgspec.to_builtins(fields).items() if value}


def _change(
    kind: Literal["schedule", "calendar"],
    name: str,
    old: dict[str, Any] | None,
    new: dict[str, Any] | None,
) -> Change:
    before, after = old or {}, new or {}
    if old is not None and before == after:
        return Change(kind, "unchanged", name)
    fields = [
        FieldChange(field, before.get(field), after.get(field))
        for field in dict.fromkeys((*before, *after))
        if before.get(field) != after.get(field)
    ]
    return Change(kind, "create" if old is None else "update", name, fields)
