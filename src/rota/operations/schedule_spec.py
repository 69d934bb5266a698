"""Making a `ScheduleSpec` from the words of an application, a request or a command line."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from rota.core.time.interval import seconds_of
from rota.core.time.schedule import Calendar, Cron, Every, RRule, ScheduleSpec
from rota.errors import ConfigError


def make_spec(
    name: str,
    task: str,
    *,
    cron: str | None = None,
    every: float | str | timedelta | None = None,
    calendar: str | None = None,
    rrule: str | None = None,
    anchor: datetime | None = None,
    jitter: float | str = 0.0,
    spread: float | str = 0.0,
    **rest: Any,
) -> ScheduleSpec:
    """A schedule from its parts: exactly one of cron, every, calendar and rrule, and what it allows."""
    if isinstance(every, timedelta):
        every = every.total_seconds()
    rules: dict[str, Any] = {
        "cron": cron and Cron(cron),
        "every": every and Every(seconds_of(every, "every"), anchor),
        "calendar": calendar and Calendar(calendar),
        "rrule": rrule and RRule(rrule),
    }
    given = [rule for rule in rules.values() if rule]
    if len(given) != 1:
        raise ConfigError(
            f"schedule {name!r} needs exactly one rule: cron, every, calendar or rrule"
        )
    if anchor is not None and not every:
        raise ConfigError(f"schedule {name!r}: anchor goes with every")
    unknown = sorted(set(rest) - set(ScheduleSpec.__struct_fields__))
    if unknown:
        raise ConfigError(f"schedule {name!r}: unknown setting {unknown[0]!r}")
    for several in ("tags", "exclude", "include"):
        if several in rest:
            rest[several] = _names(rest[several])
    if isinstance(options := rest.get("options"), dict):
        # Lists, as they come back from the database.
        listed = {key: [*_names(options[key])] for key in ("needs", "tags") if options.get(key)}
        rest["options"] = {**options, **listed}
    return ScheduleSpec(
        name=name,
        task=task,
        rule=given[0],
        jitter=seconds_of(jitter, "jitter") if jitter else 0.0,
        spread=seconds_of(spread, "spread") if spread else 0.0,
        **rest,
    )


def _names(given: Any) -> tuple[Any, ...]:
    """A text is one name, not its letters."""
    return (given,) if isinstance(given, str) else tuple(given)
