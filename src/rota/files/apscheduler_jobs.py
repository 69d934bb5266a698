"""Read the jobs of a scheduler of APScheduler 3, which may run or not.

APScheduler isn't imported: its objects are asked for what they have. In its cron triggers all fields
must match, and the weekday 0 is Monday.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from rota.errors import ConfigError
from rota.files.foreign import Foreign, by_name, name_of, rule_of

_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_ORDINALS = {"1st": "1", "2nd": "2", "3rd": "3", "4th": "4", "5th": "5"}
_NTH = re.compile(r"(?P<nth>\w+)\s+(?P<day>mon|tue|wed|thu|fri|sat|sun)")


def read_jobs(scheduler: Any) -> Foreign:
    """Read every job that the scheduler has."""
    found = Foreign()
    for job in scheduler.get_jobs():
        place = f"job {job.id!r}"
        try:
            found.add(place, name_of(str(job.id)), **_job(found, place, job))
        except ConfigError as error:
            found.refuse(place, str(error))
    return found


def _job(found: Foreign, place: str, job: Any) -> dict[str, Any]:
    trigger = job.trigger
    rule = _rule(trigger)
    payload = by_name(job.func, job.args or (), job.kwargs or {})
    if job.max_instances > 1:
        rule |= {"overlap": "queue", "max_running": job.max_instances}
    if not getattr(job, "coalesce", True):
        found.warn(place, "coalesce=False: missed runs are left out here; see catch_up")
    if jitter := getattr(trigger, "jitter", None):
        rule["jitter"] = float(jitter)
    ends: datetime | None = getattr(trigger, "end_date", None)
    paused = getattr(job, "next_run_time", True) is None
    return {
        "task": name_of(job.func.__name__), "payload": payload, "paused": paused, "ends": ends, **rule,
        "description": "" if job.name == job.func.__name__ else str(job.name),
    }  # fmt: skip


def _rule(trigger: Any) -> dict[str, Any]:
    kind = type(trigger).__name__
    if kind == "IntervalTrigger":
        return {"every": trigger.interval, "anchor": trigger.start_date}
    if kind != "CronTrigger":
        advice = {
            "DateTrigger": "it runs once: submit a job with at=",
            "AndTrigger": "combine the rules in one cron expression",
            "OrTrigger": "make it one schedule for each of its triggers",
        }.get(kind, "there is no rule like it here")
        raise ConfigError(f"its trigger is a {kind}: {advice}")
    fields = {field.name: str(field) for field in trigger.fields}
    for name in ("year", "week"):
        if fields[name] != "*":
            raise ConfigError(
                f"its trigger names a {name} ({fields[name]}), which cron rules can't"
            )
    day, weekday = _days(fields["day"], fields["day_of_week"])
    rule: dict[str, Any] = dict(
        rule_of(fields["minute"], fields["hour"], day, fields["month"], weekday, fields["second"])
    )
    zone = getattr(trigger.timezone, "key", None) or str(trigger.timezone)
    return {**rule, "tz": zone, "starts": getattr(trigger, "start_date", None)}


def _days(day: str, weekday: str) -> tuple[str, str]:
    """Return the two day fields in cron's words: numbers of weekdays as names, `last` as L."""
    # Not the step of `mon-fri/2`.
    weekday = re.sub(r"(?<!/)\b\d\b", lambda found: _WEEKDAYS[int(found[0])], weekday)
    if day == "last":
        return "L", weekday
    if nth := _NTH.fullmatch(day):
        if weekday != "*":
            raise ConfigError(f"its trigger names {day!r} and {weekday!r}: use one of them")
        if nth["nth"] == "last":
            return "*", f"{nth['day']}L"
        return "*", f"{nth['day']}#{_ORDINALS[nth['nth']]}"
    return day, weekday
