"""Schedules, the rows of their ledger and their forecasts as users see them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec

from rota.core.time.forecast import Forecast
from rota.core.time.recurrence import Occurrence
from rota.core.time.schedule import ScheduleSpec
from rota.errors import ConfigError


def schedule_tag(version: int, id: UUID) -> str:
    """Return the entity tag of a schedule. It contains a part of the id, since the version of a schedule
    that was deleted and created again begins anew."""
    return f'"{version}.{id.hex[-8:]}"'


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
    workflow: str | None = None  # what it starts, by a job of the internal task that `task` names

    @property
    def runs(self) -> str:
        """The task or the workflow that it runs, in words: a task's name, or ``workflow orders``."""
        return f"workflow {self.workflow}" if self.workflow else self.task

    @property
    def tag(self) -> str:
        """Its entity tag, which changes with every change of its definition."""
        return schedule_tag(self.version, self.id)

    @property
    def is_orphan(self) -> bool:
        """True if it was declared in code, and no application is known to declare it any more."""
        return self.source == "code" and self.app is None

    @property
    def readable(self) -> ScheduleSpec:
        """Its definition; raises `ConfigError` if that can't be read."""
        if self.spec is None:
            raise ConfigError(
                f"schedule {self.name!r} can't be read: {self.problem}. Create it again under its name, "
                "or delete it"
            )
        return self.spec


class OccurrenceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the ledger, with the state of its job, or of the run that the job has started."""

    due_at: datetime
    run_at: datetime
    state: Literal["fired", "skipped"]
    reason: str | None
    caught_up: bool
    job_id: UUID | None
    job_state: str | None
    version: int
    lag: (
        float | None
    )  # seconds from when it should have started to its start; None: backfilled, or not started


class LatestOccurrence(msgspec.Struct, frozen=True):
    """One of the newest rows of a schedule's ledger."""

    schedule: str
    occurrence: OccurrenceStatus


class UnsettledStretch(msgspec.Struct, frozen=True):
    """A stretch of time of which it isn't known what was due: a version could not be read."""

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


class UsualDuration(msgspec.Struct, frozen=True):
    """The duration that is assumed for the runs of a task, and its source."""

    seconds: float
    source: Literal["measured", "given", "assumed"]


class LoadForecast(msgspec.Struct, frozen=True, kw_only=True):
    """A forecast, with what it is based on. `schedules` counts all, paused ones included."""

    start: datetime
    end: datetime
    slots: int
    schedules: int
    durations: dict[str, UsualDuration]
    forecast: Forecast
