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


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """The ledger beside what the rule says."""

    name: str
    first: datetime
    end: datetime
    expected: int
    missing: list[datetime]
    extra: list[datetime]

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


def expected_moments(
    versions: Sequence[tuple[datetime, Recurrence]],
    cursor: datetime,
    first: datetime,
    end: datetime,
) -> set[datetime]:
    """What must be in the ledger between two moments, by the versions in force (from when, what)."""
    expected: set[datetime] = set()
    for index, (valid_from, recurrence) in enumerate(versions):
        until = versions[index + 1][0] if index + 1 < len(versions) else cursor
        # A version decides about what comes after its beginning, up to and with its end.
        begin, close = max(valid_from + _TICK, first), min(until + _TICK, end)
        expected.update(found.nominal for found in recurrence.between(begin, close))
    return expected


def recorded_moments(rows: Sequence[Any]) -> set[datetime]:
    """What the ledger says that the rule is answerable for."""
    return {row["due_at"] for row in rows if row["reason"] not in _BY_HAND}
