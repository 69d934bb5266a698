"""A schedule as a request says it, turned into a `ScheduleSpec`. Pure: no I/O, no framework."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rota.core.time.schedule import (
    Calendar,
    CatchUp,
    Cron,
    Every,
    Overlap,
    RRule,
    ScheduleSpec,
    check_length,
    make_spec,
)
from rota.core.time.zones import Fold, Gap
from rota.errors import ConfigError
from rota.operations.job_request import Moment, Name
from rota.operations.schedule_reads import check_years

Duration = Annotated[str, Meta(max_length=50, description="Such as 15m, 1h30m.")] | float

CalendarNames = Annotated[list[Annotated[str, Meta(max_length=200)]], Meta(max_length=50)]


class RuleRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """When: exactly one of `cron`, `every`, `calendar`, `rrule` and `rule` (as answers show it)."""

    cron: Annotated[str, Meta(max_length=500)] | UnsetType = UNSET
    every: Duration | UnsetType = UNSET
    calendar: Annotated[str, Meta(max_length=500)] | UnsetType = UNSET
    rrule: Annotated[str, Meta(max_length=2000)] | UnsetType = UNSET
    rule: Cron | Every | Calendar | RRule | UnsetType = UNSET
    anchor: Moment | UnsetType = UNSET
    tz: Annotated[str, Meta(max_length=100)] | UnsetType = UNSET
    gap: Gap | UnsetType = UNSET
    fold: Fold | UnsetType = UNSET
    starts: Moment | UnsetType | None = UNSET
    ends: Moment | UnsetType | None = UNSET
    max_occurrences: int | UnsetType | None = UNSET
    jitter: Duration | UnsetType = UNSET
    spread: Duration | UnsetType = UNSET
    exclude: CalendarNames | UnsetType = UNSET
    include: CalendarNames | UnsetType = UNSET


class ScheduleRequest(RuleRequest, forbid_unknown_fields=True, kw_only=True):
    """A schedule: which task runs when, and with what."""

    task: Name
    payload: dict[str, Any] | UnsetType | None = UNSET
    options: dict[str, Any] | UnsetType = UNSET
    overlap: Overlap | UnsetType = UNSET
    max_queued: int | UnsetType = UNSET
    drop: Literal["oldest", "newest"] | UnsetType = UNSET
    max_running: int | UnsetType | None = UNSET
    catch_up: CatchUp | UnsetType = UNSET
    description: Annotated[str, Meta(max_length=2000)] | UnsetType = UNSET
    tags: Annotated[list[Name], Meta(max_length=50)] | UnsetType = UNSET
    paused: bool | UnsetType = UNSET


class NewScheduleRequest(ScheduleRequest, forbid_unknown_fields=True, kw_only=True):
    name: Annotated[str, Meta(min_length=1, max_length=200)]


class PreviewRequest(RuleRequest, forbid_unknown_fields=True, kw_only=True):
    """`name`: the schedule's name to be, on which spread and `H` depend."""

    name: Annotated[str, Meta(min_length=1, max_length=200)] = "preview"
    count: Annotated[int, Meta(ge=1, le=1000)] = 10
    after: Moment | None = None


_NOT_OF_THE_RULE = ("name", "task", "rule", "count", "after")


def to_spec(said: RuleRequest, name: str, task: str) -> ScheduleSpec:
    given = {
        field: value
        for field in said.__struct_fields__
        if field not in _NOT_OF_THE_RULE
        and (value := getattr(said, field)) is not UNSET
        and value is not None
    }
    check_years(**{field: given.get(field) for field in ("starts", "ends", "anchor")})
    if said.rule is UNSET:
        return make_spec(name, task, **given)
    if others := [rule for rule in ("cron", "every", "calendar", "rrule") if rule in given]:
        raise ConfigError(f"{others[0]}: there is a rule already; give one of them")
    check_length(said.rule)
    check_years(anchor=getattr(said.rule, "anchor", None))
    spec = make_spec(name, task, cron="@daily", **given)  # its rule is a stand-in
    return msgspec.structs.replace(spec, rule=said.rule)
