"""The definition of a schedule: a rule, and the settings of its occurrences."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Literal, get_args
from zoneinfo import ZoneInfo

import msgspec

from rota.config import START_TASK, check_name
from rota.core.time.calendars import NamedCalendar
from rota.core.time.cron import parse_cron
from rota.core.time.interval import EPOCH, seconds_of
from rota.core.time.phrases import parse_phrase
from rota.core.time.recurrence import Limits, Recurrence, Ticks
from rota.core.time.rrule import parse_rrule
from rota.core.time.zones import Fold, Gap, LocalRule, wall_time, zone
from rota.errors import ConfigError

Overlap = Literal["skip", "queue", "allow", "kill"]
Drop = Literal["oldest", "newest"]
CatchUpKind = Literal["none", "latest", "all"]
_TICK = timedelta(microseconds=1)
_MAX_COUNTED = 10_000
_MOST_CHARACTERS = 500
_MOST_RRULE_CHARACTERS = 2_000
_MAX_AT_ONCE = 1_000_000
_CENTURY = 100 * 366 * 86400.0
# The options that a schedule may set for its jobs.
OPTIONS = (
    "queue", "priority", "needs", "timeout", "heartbeat_timeout", "max_attempts", "tags",
    "resources", "near", "near_patience",
)  # fmt: skip
RUN_OPTIONS = ("queue", "priority", "tags")  # of those, the ones that a run of a workflow has
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,199}")


class Cron(msgspec.Struct, frozen=True, tag="cron", forbid_unknown_fields=True):
    """A cron expression, see `rota.core.time.cron`."""

    expression: str


class Every(msgspec.Struct, frozen=True, tag="every", forbid_unknown_fields=True):
    """Every so many seconds of elapsed time from the anchor (or `starts`, or 1970 in UTC)."""

    seconds: float
    anchor: datetime | None = None


class Calendar(msgspec.Struct, frozen=True, tag="calendar", forbid_unknown_fields=True):
    """A phrase such as ``last business day of the month at 18:00``, see `...phrases`."""

    phrase: str


class RRule(msgspec.Struct, frozen=True, tag="rrule", forbid_unknown_fields=True):
    """An RFC 5545 recurrence rule, see `rota.core.time.rrule`."""

    text: str


Rule = Cron | Every | Calendar | RRule


class CatchUp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The policy for missed occurrences, see `rota.core.time.plan`. `within` is in seconds."""

    kind: CatchUpKind = "none"
    within: float | None = None


NoCatchUp = CatchUp()


def Latest(within: float | str | None = None) -> CatchUp:  # noqa: N802 (reads as the policy's name)
    """Run the newest missed occurrence, if it was due within this time."""
    return CatchUp("latest", None if within is None else seconds_of(within, "catch_up.within"))


def All(within: float | str | None = None) -> CatchUp:  # noqa: N802
    """Run each missed occurrence that was due within this time."""
    return CatchUp("all", None if within is None else seconds_of(within, "catch_up.within"))


class ScheduleSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as its author wrote it. `starts` is included, `ends` is not.

    It runs a task, or starts a workflow; `payload` holds the arguments or the input.
    """

    name: str
    task: str = ""
    workflow: str | None = None
    rule: Rule
    tz: str = "UTC"
    gap: Gap = "next"
    fold: Fold = "first"
    payload: Any = None
    options: dict[str, Any] = {}
    overlap: Overlap = "skip"
    max_queued: int = 1
    drop: Drop = "newest"
    max_running: int | None = None
    catch_up: CatchUp = NoCatchUp
    starts: datetime | None = None
    ends: datetime | None = None
    max_occurrences: int | None = None
    jitter: float = 0.0
    spread: float = 0.0
    exclude: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    description: str = ""
    tags: tuple[str, ...] = ()
    paused: bool = False

    def __post_init__(self) -> None:
        _check_kinds(self)
        _check_names(self)
        _check_choices(self)
        _check_numbers(self)
        _check_window(self)

    @property
    def job_task(self) -> str:
        """The task of its jobs. A workflow is started by a job of a task of Rota's own."""
        return START_TASK if self.workflow else self.task


def make_spec(
    name: str,
    task: str = "",
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
    """Make a schedule from the words of an application, a request or a command line.

    Exactly one of cron, every, calendar and rrule must be given.
    """
    rules = (
        cron and Cron(cron),
        # 0 is a rule, which is refused by what it says.
        every not in (None, "") and Every(seconds_of(every, "every"), anchor),
        calendar and Calendar(calendar),
        rrule and RRule(rrule),
    )
    given: list[Any] = [rule for rule in rules if rule]
    if len(given) != 1:
        raise ConfigError(
            f"schedule {name!r} needs exactly one rule: cron, every, calendar or rrule"
        )
    if anchor is not None and not every:
        raise ConfigError(f"schedule {name!r}: anchor goes with every")
    unknown = sorted(set(rest) - set(ScheduleSpec.__struct_fields__))
    if unknown:
        raise ConfigError(f"schedule {name!r}: unknown setting {unknown[0]!r}")
    if not isinstance(rest.get("payload") or {}, Mapping):
        raise ConfigError("payload: must be a mapping of argument names and values")
    for several in ("tags", "exclude", "include"):
        if several in rest:
            rest[several] = _names(rest[several])
    if isinstance(options := rest.get("options"), dict):
        # Lists, as the database returns them.
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
    """Return the names as a tuple. A text is one name, not its letters."""
    return (given,) if isinstance(given, str) else tuple(given)


def compile_schedule(
    spec: ScheduleSpec, calendars: Mapping[str, NamedCalendar] | None = None
) -> Recurrence:
    """Compile a schedule. Raises `ConfigError`, which names what is wrong with its rule."""
    known = calendars or {}
    tz = zone(spec.tz)
    limits = Limits(
        starts=_utc(spec.starts),
        ends=_utc(spec.ends),
        spread=spec.spread,
        jitter=spec.jitter,
        exclude=_chosen("exclude", spec.exclude, known),
        include=_chosen("include", spec.include, known),
    )
    rule = _rule(spec, tz, known)
    policies = (spec.gap, spec.fold)
    recurrence = Recurrence(spec.name, rule, tz, policies, limits)
    if spec.max_occurrences is None:
        return recurrence
    ends = _end_of_count(recurrence, spec.max_occurrences)
    return Recurrence(spec.name, rule, tz, policies, msgspec.structs.replace(limits, ends=ends))


def check_length(rule: Rule) -> None:
    """Refuse a text that nobody wrote by hand: reading it would take longer than running its jobs."""
    match rule:
        case Cron(text) | Calendar(text):
            most = _MOST_CHARACTERS
        case RRule(text):
            most = _MOST_RRULE_CHARACTERS
        case _:
            return
    if len(text) > most:
        field = type(rule).__struct_config__.tag
        raise ConfigError(f"{field}: has {len(text):,} characters, the limit is {most:,}")


def _rule(
    spec: ScheduleSpec, tz: ZoneInfo, known: Mapping[str, NamedCalendar]
) -> LocalRule | Ticks:
    check_length(spec.rule)
    try:
        start = wall_time(spec.starts, tz) if spec.starts is not None else None
        match spec.rule:
            case Cron(expression):
                return parse_cron(expression, spec.name)
            case Every(seconds, anchor):
                return Ticks(seconds, _utc(anchor or spec.starts) or EPOCH)
            case Calendar(phrase):
                return parse_phrase(phrase, known, start.date() if start else None)
            case RRule(text):
                return parse_rrule(text, tz, start.replace(microsecond=0) if start else None)
    except (ValueError, OverflowError) as error:
        raise ConfigError(
            f"schedule {spec.name!r}: a number in its rule is too large: {error}"
        ) from None


def _end_of_count(recurrence: Recurrence, count: int) -> datetime | None:
    """Return the moment after the last of the counted ones. Excluded occurrences don't count."""
    starts = recurrence.limits.starts
    assert starts is not None
    counted = islice(recurrence.kept_after(starts - _TICK), count)
    last = starts
    for seen, found in enumerate(counted, start=1):
        last = found.nominal
        if seen == count:
            return last + _TICK
    return recurrence.limits.ends


def _chosen(
    field: str, names: tuple[str, ...], known: Mapping[str, NamedCalendar]
) -> tuple[NamedCalendar, ...]:
    for name in names:
        if name not in known:
            there = ", ".join(sorted(known)) or "none"
            raise ConfigError(f"{field}: no calendar {name!r}; there are: {there}")
    return tuple(known[name] for name in names)


def _utc(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.astimezone(UTC)


def check_schedule_name(name: str) -> None:
    """Refuse a name that no schedule can have."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"name: {name!r} is not a schedule's name; letters, digits and _.:/- up to 200"
        )


def _check_kinds(spec: ScheduleSpec) -> None:
    """Refuse values of other types, which nothing else looks at before they are used."""
    for field in ("name", "task", "tz", "description"):
        if not isinstance(value := getattr(spec, field), str):
            raise ConfigError(f"{field}: must be a text, not {value!r:.60}")
    for field in ("starts", "ends"):
        if not isinstance(value := getattr(spec, field), datetime | None):
            raise ConfigError(f"{field}: must be a datetime with a time zone, not {value!r:.60}")
    if not isinstance(spec.catch_up, CatchUp):
        raise ConfigError(
            f"catch_up: must be NoCatchUp, Latest() or All() of rota, not {spec.catch_up!r:.60}"
        )
    if isinstance(spec.rule, Cron | Calendar | RRule):
        text = msgspec.structs.astuple(spec.rule)[0]
        if not isinstance(text, str):
            kind = type(spec.rule).__struct_config__.tag
            raise ConfigError(f"{kind}: must be a text, not {text!r:.60}")


def _check_names(spec: ScheduleSpec) -> None:
    check_schedule_name(spec.name)
    if spec.workflow is not None:
        check_name("workflow:", spec.workflow)
        if spec.task:
            raise ConfigError("workflow: a schedule runs a task or a workflow, not both")
    elif not spec.task:
        raise ConfigError("task: must not be empty; name a task or a workflow to run")
    for field in ("task", "rule", "options", "exclude", "include", "description", "tags"):
        _check_text(field, getattr(spec, field))
    if not all(isinstance(tag, str) and tag for tag in spec.tags):
        raise ConfigError("tags: each must be a text, and not empty")
    zone(spec.tz)
    if unknown := [key for key in spec.options if key not in OPTIONS]:
        raise ConfigError(f"options: {unknown[0]!r} is none of {', '.join(OPTIONS)}")
    if spec.workflow and (of_tasks := [key for key in spec.options if key not in RUN_OPTIONS]):
        raise ConfigError(
            f"options: {of_tasks[0]!r} is none of {', '.join(RUN_OPTIONS)}, which a schedule may set "
            "for a workflow; set it for the workflow's steps"
        )


def _check_text(field: str, value: Any) -> None:
    """Refuse characters that can't be stored, wherever in the value they are."""
    match value:
        case str():
            if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
                raise ConfigError(f"{field}: {value!r} holds a character that can't be stored")
        case dict():
            _check_text(field, [*value, *value.values()])
        case list() | tuple():
            for item in value:
                _check_text(field, item)
        case Cron(text) | Calendar(text) | RRule(text):
            _check_text(field, text)


def _check_choices(spec: ScheduleSpec) -> None:
    choices = (
        ("gap", spec.gap, Gap), ("fold", spec.fold, Fold), ("overlap", spec.overlap, Overlap),
        ("drop", spec.drop, Drop), ("catch_up", spec.catch_up.kind, CatchUpKind),
    )  # fmt: skip
    for field, value, allowed in choices:
        if value not in get_args(allowed):
            raise ConfigError(f"{field}: {value!r} is none of {', '.join(get_args(allowed))}")


def _check_numbers(spec: ScheduleSpec) -> None:
    for field in ("jitter", "spread"):
        if not 0 <= (value := getattr(spec, field)) <= 86400:
            raise ConfigError(f"{field}: {value!r} is not in 0 to 86400 seconds")
    for field in ("max_queued", "max_running", "max_occurrences"):
        value = getattr(spec, field)
        if value is not None and not 1 <= value <= _MAX_AT_ONCE:
            raise ConfigError(f"{field}: {value!r} is not in 1 to {_MAX_AT_ONCE}")
    within = spec.catch_up.within
    if within is not None and not 0 < within <= _CENTURY:
        raise ConfigError(
            f"catch_up.within: {within!r} is not a number of seconds above 0 and below a century; "
            "leave it out to look back without a limit"
        )
    if isinstance(spec.rule, Every) and not 1 <= spec.rule.seconds <= 10 * 366 * 86400:
        raise ConfigError(f"every: {spec.rule.seconds!r} is not in 1 second to 10 years")
    if isinstance(spec.rule, Every) and spec.jitter >= spec.rule.seconds:
        raise ConfigError(f"jitter: {spec.jitter:g} s must be shorter than the interval")


def _check_window(spec: ScheduleSpec) -> None:
    anchor = spec.rule.anchor if isinstance(spec.rule, Every) else None
    for field, moment in (("starts", spec.starts), ("ends", spec.ends), ("anchor", anchor)):
        if moment is not None and moment.utcoffset() is None:
            raise ConfigError(f"{field}: {moment} has no time zone; write one, such as +00:00")
        # Every zone's wall clock must be able to show it.
        if moment is not None and not 2 <= moment.year <= 9998:
            raise ConfigError(f"{field}: the year {moment.year} is too far away in time")
    if spec.starts is not None and spec.ends is not None and spec.ends <= spec.starts:
        raise ConfigError(f"ends: {spec.ends} is not after starts, {spec.starts}")
    if spec.max_occurrences is not None and spec.starts is None:
        raise ConfigError("max_occurrences: needs starts, from which to count")
    if spec.max_occurrences is not None and spec.max_occurrences > _MAX_COUNTED:
        raise ConfigError(f"max_occurrences: over {_MAX_COUNTED}; use ends")
