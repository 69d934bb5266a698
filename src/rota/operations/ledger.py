"""A schedule and its ledger as people see them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import msgspec

from rota.core.time.calendars import NamedCalendar
from rota.core.time.lint import Warned, Watched
from rota.core.time.recurrence import Occurrence, Recurrence
from rota.core.time.schedule import ScheduleSpec, compile_schedule
from rota.core.time.words import describe
from rota.errors import ConfigError, RotaError
from rota.lib.computing import Spend, unlimited
from rota.model import State
from rota.operations.preconditions import schedule_tag
from rota.store.schedules import FIRED, decode_spec

_TICK = timedelta(microseconds=1)
_BY_HAND = ("triggered", "backfilled")


class ScheduleStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it is now."""

    id: UUID
    name: str
    version: int
    task: str
    spec: ScheduleSpec | None  # None: it can't be read, `problem` says why
    in_words: str
    next_due: datetime | None
    paused_at: datetime | None
    paused_until: datetime | None
    fired: int
    source: str
    created_at: datetime
    updated_at: datetime
    warnings: tuple[str, ...] = ()  # in the answer to who made it: e.g. that its task is unknown
    app: str | None = None  # the application whose code declares it
    problem: str | None = None  # why it doesn't fire: it can't be read, or a node has set it aside
    problem_since: datetime | None = None

    @property
    def tag(self) -> str:
        """Its entity tag, which changes with every change of its definition."""
        return schedule_tag(self.version, self.id)

    @property
    def is_orphan(self) -> bool:
        """Whether it was declared in code, and no application is known to declare it any more."""
        return self.source == "code" and self.app is None

    @property
    def readable(self) -> ScheduleSpec:
        """What it says; a `ConfigError` if that can't be read."""
        if self.spec is None:
            raise ConfigError(
                f"schedule {self.name!r} can't be read: {self.problem}. Create it anew under its name, "
                "or delete it"
            )
        return self.spec


class OccurrenceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the ledger, with how its job is doing."""

    due_at: datetime
    run_at: datetime
    state: Literal["fired", "skipped"]
    reason: str | None
    caught_up: bool
    job_id: UUID | None
    job_state: str | None
    version: int
    lag: float | None  # seconds from when it should have started to its start


class UnsettledStretch(msgspec.Struct, frozen=True):
    """A stretch of time of which nobody can say what was due: a version could not be read."""

    begin: datetime
    end: datetime
    reason: str


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """The ledger beside what the rule says. What is in `unsettled` could not be compared."""

    name: str
    first: datetime
    end: datetime
    expected: int
    missing: list[datetime]
    extra: list[datetime]
    unsettled: list[UnsettledStretch] = []

    @property
    def is_clean(self) -> bool:
        return not self.missing and not self.extra


class Preview(msgspec.Struct, frozen=True):
    """The next occurrences of a rule. One with `excluded_by` isn't run."""

    in_words: str
    occurrences: Sequence[Occurrence]


def _as_stored(id: UUID, spec: ScheduleSpec) -> ScheduleSpec:
    return spec


def to_status(
    row: Any, opened: Callable[[UUID, ScheduleSpec], ScheduleSpec] = _as_stored
) -> ScheduleStatus:
    """`opened` reads a payload that may be encrypted."""
    spec, problem = None, _set_aside(row)
    try:
        spec = opened(row["id"], decode_spec(row["spec"]))
        in_words = describe(spec)
    except (RotaError, OverflowError) as error:
        problem = problem or str(error)
        in_words = "(can't be read)"
    fields = ("id", "name", "version", "task", "next_due", "paused_at", "paused_until", "fired",
              "source", "app", "created_at", "updated_at")  # fmt: skip
    return ScheduleStatus(
        spec=spec, in_words=in_words, problem=problem, problem_since=row["trouble_since"],
        **{field: row[field] for field in fields},
    )  # fmt: skip


def _set_aside(row: Any) -> str | None:
    if row["trouble"] is None:
        return None
    return f"set aside on {row['trouble_node']}: {row['trouble']}"


def watch_all(
    found: Iterable[ScheduleStatus],
    calendars: Mapping[str, NamedCalendar],
    usual: Callable[[str], float | None],
) -> tuple[list[tuple[ScheduleStatus, Watched]], list[Warned]]:
    """The schedules ready for `lint` and forecasts, and a warning for each that can't be.

    `usual` says how many seconds a task usually takes.
    """
    watched: list[tuple[ScheduleStatus, Watched]] = []
    broken: list[Warned] = []
    for status in found:
        try:
            spec = status.readable
            recurrence = compile_schedule(spec, calendars)
            watched.append((status, Watched(spec, recurrence, usual(spec.task))))
        except (ConfigError, OverflowError) as error:
            broken.append(Warned("broken", status.name, f"{status.name} doesn't fire: {error}"))
    return watched, broken


def to_occurrence(row: Any) -> OccurrenceStatus:
    started = row["started_at"]
    return OccurrenceStatus(
        due_at=row["due_at"],
        run_at=row["run_at"],
        state="fired" if row["state"] == FIRED else "skipped",
        reason=row["reason"],
        caught_up=row["caught_up"],
        job_id=row["job_id"],
        job_state=State(row["job_state"]).label if row["job_state"] is not None else None,
        version=row["version"],
        lag=(started - row["run_at"]).total_seconds() if started else None,
    )


class Version(msgspec.Struct, frozen=True):
    """What was said from a moment on. Without a recurrence it can't be read: `problem` says why.

    `unsettled_from`: since when, up to its beginning, the version before it could not be asked.
    """

    valid_from: datetime
    recurrence: Recurrence | None
    problem: str | None = None
    unsettled_from: datetime | None = None
    unsettled: str | None = None


def expected_moments(
    versions: Sequence[Version], cursor: datetime, first: datetime, end: datetime,
    spend: Spend = unlimited,
) -> set[datetime]:  # fmt: skip
    """What must be in the ledger between two moments, by the versions in force."""
    expected: set[datetime] = set()
    for index, version in enumerate(versions):
        if version.recurrence is None:
            continue
        until = cursor
        if index + 1 < len(versions):
            until = versions[index + 1].unsettled_from or versions[index + 1].valid_from
        # A version decides about what comes after its beginning, up to and with its end.
        begin, close = max(version.valid_from + _TICK, first), min(until + _TICK, end)
        expected.update(found.nominal for found in spend(version.recurrence.between(begin, close)))
    return expected


def unsettled_stretches(
    versions: Sequence[Version], first: datetime, end: datetime
) -> list[UnsettledStretch]:
    """Where nothing can be compared, within two moments."""
    found: list[UnsettledStretch] = []
    for index, version in enumerate(versions):
        if version.unsettled_from is not None:
            found.append(
                UnsettledStretch(
                    version.unsettled_from, version.valid_from, version.unsettled or "unknown"
                )
            )
        if version.recurrence is None:
            close = versions[index + 1].valid_from if index + 1 < len(versions) else end
            found.append(
                UnsettledStretch(version.valid_from, close, version.problem or "it can't be read")
            )
    return [one for one in found if one.begin < end and one.end >= first]


def outside(moments: set[datetime], stretches: Sequence[UnsettledStretch]) -> set[datetime]:
    return {
        moment for moment in moments
        if not any(one.begin < moment <= one.end for one in stretches)
    }  # fmt: skip


def recorded_moments(rows: Sequence[Any]) -> set[datetime]:
    """What the ledger says that the rule is answerable for."""
    return {row["due_at"] for row in rows if row["reason"] not in _BY_HAND}
