"""A schedule and its ledger as people see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import msgspec

from rota.core.time.recurrence import Recurrence
from rota.core.time.schedule import ScheduleSpec
from rota.core.time.words import describe
from rota.model import State
from rota.store.schedules import FIRED, decode_spec

_TICK = timedelta(microseconds=1)
_BY_HAND = ("triggered", "backfilled")


class ScheduleStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it is now."""

    id: UUID
    name: str
    version: int
    task: str
    spec: ScheduleSpec
    in_words: str
    next_due: datetime | None
    paused_at: datetime | None
    paused_until: datetime | None
    fired: int
    source: str
    created_at: datetime
    updated_at: datetime
    warnings: tuple[str, ...] = ()  # in the answer to who made it: e.g. that its task is unknown


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


def _as_stored(id: UUID, spec: ScheduleSpec) -> ScheduleSpec:
    return spec


def to_status(
    row: Any, opened: Callable[[UUID, ScheduleSpec], ScheduleSpec] = _as_stored
) -> ScheduleStatus:
    """`opened` reads a payload that may be encrypted."""
    spec = opened(row["id"], decode_spec(row["spec"]))
    fields = ("id", "name", "version", "task", "next_due", "paused_at", "paused_until", "fired",
              "source", "created_at", "updated_at")  # fmt: skip
    return ScheduleStatus(
        spec=spec, in_words=describe(spec), **{field: row[field] for field in fields}
    )


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
    versions: Sequence[Version], cursor: datetime, first: datetime, end: datetime
) -> set[datetime]:
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
        expected.update(found.nominal for found in version.recurrence.between(begin, close))
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
