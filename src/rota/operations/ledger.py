"""Schedules and their ledger as users see them, and the comparison of a ledger with its rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from rota.core.time.calendars import NamedCalendar
from rota.core.time.recurrence import Recurrence
from rota.core.time.schedule import ScheduleSpec, compile_schedule
from rota.core.time.status import (
    Audit,
    OccurrenceStatus,
    ScheduleStatus,
    UnsettledStretch,
)
from rota.core.time.stored import decode_spec
from rota.core.time.words import describe
from rota.errors import ConfigError, RotaError
from rota.lib.computing import Spend, unlimited
from rota.model import State
from rota.store.sql import OCCURRENCES

_FIRED = OCCURRENCES["fired"]
_TICK = timedelta(microseconds=1)
_BY_HAND = ("triggered", "backfilled")


def to_status(row: Any, opened: Callable[[UUID, ScheduleSpec], ScheduleSpec]) -> ScheduleStatus:
    """Make a status from a row. `opened` decrypts the payload of a schedule."""
    spec = problem = None
    if row["problem"] is not None:
        problem = f"set aside on {row['problem_node']}: {row['problem']}"
    try:
        spec = opened(row["id"], decode_spec(row["spec"]))
        in_words = describe(spec)
    except (RotaError, OverflowError) as error:
        problem = problem or str(error)
        in_words = "(can't be read)"
    fields = ("id", "name", "version", "task", "next_due", "paused_at", "paused_until", "fired",
              "source", "app", "created_at", "updated_at")  # fmt: skip
    return ScheduleStatus(
        spec=spec, in_words=in_words, problem=problem, problem_since=row["problem_since"],
        workflow=spec.workflow if spec else None,
        **{field: row[field] for field in fields},
    )  # fmt: skip


def to_occurrence(row: Any) -> OccurrenceStatus:
    started = row["started_at"]
    return OccurrenceStatus(
        due_at=row["due_at"],
        run_at=row["run_at"],
        state="fired" if row["state"] == _FIRED else "skipped",
        reason=row["reason"],
        caught_up=row["caught_up"],
        job_id=row["job_id"],
        job_state=State(row["job_state"]).label if row["job_state"] is not None else None,
        version=row["version"],
        # What was filled in later was not to start at any moment.
        lag=(started - row["run_at"]).total_seconds()
        if started and row["reason"] != "backfilled"
        else None,
    )


class Span(msgspec.Struct, frozen=True):
    """A stretch of time in which one version of a schedule was in force.

    Without a recurrence it is not known what was due: `problem` says why.
    """

    begin: datetime
    end: datetime
    recurrence: Recurrence | None
    problem: str = ""

    def moments(self, first: datetime, end: datetime, spend: Spend) -> Iterator[datetime]:
        """Iterate over the occurrences: after its beginning, up to and with its end."""
        if self.recurrence is not None:
            begin, close = max(self.begin + _TICK, first), min(self.end + _TICK, end)
            for found in spend(self.recurrence.between(begin, close)):
                yield found.nominal


def to_spans(
    versions: Sequence[Any], calendars: Mapping[str, NamedCalendar], cursor: datetime, end: datetime,
    spend: Spend = unlimited,
) -> Iterator[Span]:  # fmt: skip
    """Make spans from the rows of a schedule's versions, oldest first. The last ends at the cursor."""
    for row, following in spend(zip(versions, [*versions[1:], None], strict=True)):
        begin, until = row["valid_from"], cursor
        if row["unsettled_from"] is not None:
            yield Span(row["unsettled_from"], begin, None, row["unsettled"] or "unknown")
        if following is not None:
            until = following["unsettled_from"] or following["valid_from"]
        try:
            yield Span(begin, until, compile_schedule(decode_spec(row["spec"]), calendars))
        except (ConfigError, msgspec.MsgspecError, OverflowError) as error:
            yield Span(begin, following["valid_from"] if following else end, None, str(error))


def compare_ledger(
    name: str, spans: Iterable[Span], rows: Sequence[Any], first: datetime, end: datetime,
    spend: Spend = unlimited,
) -> Audit:  # fmt: skip
    """Compare the rows of the ledger between two moments with what the versions in force say."""
    known = list(spans)
    unsettled = [
        UnsettledStretch(span.begin, span.end, span.problem or "it can't be read")
        for span in known
        if span.recurrence is None and span.begin < end and span.end >= first
    ]

    def is_settled(moment: datetime) -> bool:
        return not any(one.begin < moment <= one.end for one in unsettled)

    due = (moment for span in known for moment in span.moments(first, end, spend))
    expected = set(filter(is_settled, due))
    rule_made = (row["due_at"] for row in rows if row["reason"] not in _BY_HAND)
    found = set(filter(is_settled, rule_made))
    return Audit(
        name=name, first=first, end=end, expected=len(expected), unsettled=unsettled,
        missing=sorted(expected - found), extra=sorted(found - expected),
    )  # fmt: skip
