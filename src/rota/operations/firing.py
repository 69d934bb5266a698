"""From a schedule's row to what firing writes: shared by the firer and by what people do by hand."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from rota.core.time.plan import LedgerEntry, Plan, plan
from rota.core.time.recurrence import Recurrence
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
    return plan(
        compiled.recurrence,
        cursor=row["cursor"],
        now=row["now"],
        horizon=row["horizon_ms"] / 1000 if until is None else until,
        catch_up=compiled.spec.catch_up,
        paused_since=row["paused_at"],
        limit=limit,
        superseded=superseded,
    )


def to_entries(row: Any, planned: Plan) -> list[Entry]:
    ids = iter(new_ids(sum(entry.verdict == "fire" for entry in planned.entries)))
    previous: datetime | None = row["previous"]
    entries: list[Entry] = []
    for entry in planned.entries:
        fires = entry.verdict == "fire"
        entries.append(
            Entry(
                row["id"], entry.nominal, entry.due_at, FIRED if fires else SKIPPED,
                entry.reason, entry.caught_up, next(ids) if fires else None,
                occurrence_headers(row["name"], entry, previous) if fires else None,
            )
        )  # fmt: skip
        previous = entry.nominal
    return entries


def to_advance(row: Any, planned: Plan, entries: list[Entry]) -> Advance:
    fired = sum(entry.state == FIRED for entry in entries)
    # What didn't fit is due at once.
    next_due = row["now"] if planned.more else planned.next_due
    return Advance(row["id"], planned.cursor, next_due, fired)


def occurrence_headers(name: str, entry: LedgerEntry, previous: datetime | None) -> str:
    """What the handler will find as ctx.occurrence."""
    occurrence = {
        "schedule": name,
        "due_at": entry.nominal,
        "local": entry.local,
        "previous": previous,
        "caught_up": entry.caught_up,
    }
    return msgspec.json.encode({"occurrence": occurrence}).decode()
