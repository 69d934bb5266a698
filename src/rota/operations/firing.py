"""Makes what firing writes from a schedule's row, for the firer and for operations on schedules."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from rota.core.time.plan import Outlook, Plan, plan
from rota.core.time.recurrence import Occurrence, Recurrence
from rota.core.time.schedule import ScheduleSpec
from rota.lib.ids import new_ids
from rota.store.schedules import FIRED, SKIPPED, Advance, Entry


class Compiled(msgspec.Struct):
    """A schedule's version, ready to be planned."""

    version: int
    spec: ScheduleSpec
    recurrence: Recurrence


def plan_row(
    row: Any,
    compiled: Compiled,
    *,
    limit: int,
    until: float | None = None,
    superseded: bool = False,
) -> Plan:
    """Decide about the next occurrences of a schedule, up to `until` seconds from now (by default the
    horizon)."""
    outlook = Outlook(
        now=row["now"], horizon=row["horizon_ms"] / 1000 if until is None else until,
        catch_up=compiled.spec.catch_up, paused_since=row["paused_at"],
    )  # fmt: skip
    return plan(compiled.recurrence, outlook, row["cursor"], limit, superseded=superseded)


def to_entries(row: Any, planned: Plan) -> list[Entry]:
    """Make the rows of the ledger for what was decided."""
    ids = iter(new_ids(sum(each.fires for each in planned.decisions)))
    previous: datetime | None = row["previous"]
    entries: list[Entry] = []
    for each in planned.decisions:
        job_id = next(ids) if each.fires else None
        entries.append(
            to_entry(row, each.found, job_id, each.reason, previous, caught_up=each.caught_up)
        )
        previous = each.found.nominal
    return entries


def to_entry(
    row: Any, found: Occurrence, job_id: UUID | None, reason: str | None,
    previous: datetime | None = None, *, run_at: datetime | None = None, caught_up: bool = False,
) -> Entry:  # fmt: skip
    """Make the row of the ledger for an occurrence: fired if there is a job, else skipped."""
    headers = None
    if job_id is not None:  # what the handler will find as ctx.occurrence
        occurrence = {"schedule": row["name"], "due_at": found.nominal, "local": found.local,
                      "previous": previous, "caught_up": caught_up}  # fmt: skip
        headers = msgspec.json.encode({"occurrence": occurrence}).decode()
    return Entry(
        row["id"], found.nominal, run_at or found.due_at, SKIPPED if job_id is None else FIRED,
        reason, caught_up, job_id, headers,
    )  # fmt: skip


def to_advance(
    row: Any, planned: Plan, entries: list[Entry], undecided_version: int | None = None
) -> Advance:
    """Make the schedule's new cursor. What didn't fit is due at once."""
    fired = sum(entry.state == FIRED for entry in entries)
    next_due = row["now"] if planned.more else planned.next_due
    return Advance(row["id"], planned.cursor, next_due, fired, undecided_version)
