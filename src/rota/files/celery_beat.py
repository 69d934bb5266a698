"""Read the schedules of Celery Beat: an app's `beat_schedule`, or the tables of django-celery-beat.

Celery itself isn't imported: its objects are asked for what they have. Day of month and day of week
must both match in Celery, as `rule_of` has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from rota.errors import ConfigError
from rota.files.foreign import Foreign, by_name, name_of, rule_of

_FIELDS = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
_PERIODS = {
    "days": 86_400.0,
    "hours": 3600.0,
    "minutes": 60.0,
    "seconds": 1.0,
    "microseconds": 1e-6,
}
_KNOWN_OPTIONS = ("queue", "priority")
_UNNOTICED = ("routing_key", "exchange", "delivery_mode", "headers", "ignore_result")

BEAT_TABLES = """
select t.name, t.task, t.args, t.kwargs, t.queue, t.priority, t.enabled, t.one_off, t.expires,
       t.expire_seconds, t.start_time, t.description, c.minute, c.hour, c.day_of_month,
       c.month_of_year, c.day_of_week, c.timezone, i.every, i.period, t.solar_id, t.clocked_id
from django_celery_beat_periodictask as t
left join django_celery_beat_crontabschedule as c on c.id = t.crontab_id
left join django_celery_beat_intervalschedule as i on i.id = t.interval_id
where t.name <> 'celery.backend_cleanup'
order by t.name
"""


def read_beat(
    beat_schedule: Mapping[str, Any], timezone: str, functions: Mapping[str, Callable[..., Any]]
) -> Foreign:
    """Read the entries of `app.conf.beat_schedule`. `functions`: of the tasks that are known."""
    found = Foreign()
    for key, entry in beat_schedule.items():
        place = f"beat_schedule[{key!r}]"
        try:
            settings = _entry(found, place, entry, timezone, functions)
            found.add(place, name_of(str(key)), **settings)
        except ConfigError as error:
            found.refuse(place, str(error))
    return found


def _entry(
    found: Foreign, place: str, entry: Mapping[str, Any], timezone: str,
    functions: Mapping[str, Callable[..., Any]],
) -> dict[str, Any]:  # fmt: skip
    if not isinstance(entry, Mapping):
        raise ConfigError(f"it is of type {type(entry).__name__}, and no entry of a beat_schedule")
    for name, kind in (("args", Sequence), ("kwargs", Mapping), ("options", Mapping)):
        value = entry.get(name)
        if value is not None and (not isinstance(value, kind) or isinstance(value, str)):
            raise ConfigError(f"its {name} are of type {type(value).__name__}")
    task = entry.get("task")
    if not isinstance(task, str) or not task:
        raise ConfigError("it names no task")
    payload = by_name(functions.get(task), entry.get("args") or (), entry.get("kwargs") or {})
    given = dict(entry.get("options") or {})
    options = {name: given.pop(name) for name in _KNOWN_OPTIONS if given.get(name) is not None}
    if "expires" in given:
        del given["expires"]
        found.warn(place, "expires is left out: a job waits until a worker has time for it")
    for name in [name for name in given if name not in _UNNOTICED]:
        found.warn(place, f"the option {name} is left out: Rota has none like it")
    rule = schedule_rule(entry.get("schedule"))
    zone = rule.pop("tz", None) or timezone
    return {"task": name_of(task), **rule, "tz": zone, "payload": payload, "options": options}


def schedule_rule(schedule: Any) -> dict[str, Any]:
    """Return the rule of a schedule of Celery's: seconds, a timedelta, `schedule` or `crontab`."""
    if isinstance(schedule, timedelta):
        return {"every": schedule}
    if isinstance(schedule, int | float) and not isinstance(schedule, bool):
        return {"every": float(schedule)}
    if all(hasattr(schedule, f"_orig_{name}") for name in _FIELDS):
        rule: dict[str, Any] = dict(rule_of(*(_text(schedule, name) for name in _FIELDS)))
        return rule
    if isinstance(every := getattr(schedule, "run_every", None), timedelta):
        return {"every": every}
    kind = type(schedule).__name__
    raise ConfigError(
        f"its schedule is of type {kind}, which has no rule here: use an interval or a crontab, or a "
        "task that decides for itself"
    )


def _text(schedule: Any, name: str) -> str:
    """Return a field as it was written: a text, a number or a set of numbers."""
    value = getattr(schedule, f"_orig_{name}")
    if isinstance(value, str):
        return value.replace(" ", "")
    if isinstance(value, Sequence | set | frozenset):
        return ",".join(map(str, sorted(value)))
    return str(value)


def read_tables(
    rows: Sequence[Mapping[str, Any]], functions: Mapping[str, Callable[..., Any]]
) -> Foreign:
    """Read rows of `BEAT_TABLES`."""
    found = Foreign()
    for row in rows:
        place = f"periodic task {row['name']!r}"
        try:
            found.add(place, name_of(row["name"]), **_row(found, place, row, functions))
        except (ConfigError, msgspec.DecodeError) as error:
            found.refuse(place, str(error))
    return found


def _row(
    found: Foreign, place: str, row: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]]
) -> dict[str, Any]:
    if row["minute"] is not None:
        fields = (str(row[name]).replace(" ", "") for name in _FIELDS)
        rule: dict[str, Any] = {**rule_of(*fields), "tz": str(row["timezone"])}
    elif row["every"] is not None:
        rule = {"every": row["every"] * _PERIODS[row["period"]]}
    else:
        kind = "the position of the sun" if row["solar_id"] is not None else "one moment"
        raise ConfigError(f"it is scheduled by {kind}, for which there is no rule here")
    if row["expires"] is not None or row["expire_seconds"] is not None:
        found.warn(place, "expires is left out: a job waits until a worker has time for it")
    args = msgspec.json.decode(row["args"] or "[]")
    kwargs = msgspec.json.decode(row["kwargs"] or "{}")
    options = {
        name: row[name] for name in _KNOWN_OPTIONS if row[name] is not None and row[name] != ""
    }
    return {
        "task": name_of(row["task"]), **rule, "options": options, "starts": row["start_time"],
        "payload": by_name(functions.get(row["task"]), args, kwargs),
        "description": row["description"] or "", "paused": not row["enabled"],
        "max_occurrences": 1 if row["one_off"] else None,
    }  # fmt: skip
