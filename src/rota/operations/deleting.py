"""Deleting schedules, in steps of a bounded size.

Protocol. A deletion takes the schedule and the lines of its backfills out of force in the transaction
that records it: from then on nothing of them fires or is let through, their name is free, and no list
shows them. What was due and isn't decided gets a row in the ledger that says so, and jobs that have
not started are skipped. As much of that as one transaction may write is written in that one; if it is
all, the rows of the schedule go with it. Else a janitor goes on, a step in each transaction, from where
the schedule's cursor says that the last one ended. Dying anywhere rolls back one step, which the next
janitor repeats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from rota.core.time.calendars import NamedCalendar
from rota.core.time.recurrence import Recurrence
from rota.lib.computing import Spend
from rota.operations.firing import to_entry
from rota.operations.settling import BATCH, ScheduleTransaction
from rota.store.driver_errors import blames_the_data
from rota.store.schedules import Advance, Entry, ScheduleStore

_AT_ONCE = 20  # schedules and lines that one transaction takes up


async def delete_locked(transaction: ScheduleTransaction, row: Any) -> None:
    """Delete a schedule whose row is locked, or begin to."""
    ends = max(row["now"], row["cursor"])
    store, connection = transaction.store, transaction.connection
    ids = await store.mark_deleted(connection, row["namespace"], row["name"], ends)
    await _go_on(transaction, ids)


async def finish_deletions(store: ScheduleStore) -> bool:
    """Take one step. Returns whether there is more to do."""
    async with store.database.shared_transaction("finish_deletions") as connection:
        transaction = ScheduleTransaction(store, connection)
        taken = await _go_on(transaction)
    return taken == _AT_ONCE or transaction.left == 0


async def _go_on(transaction: ScheduleTransaction, ids: Sequence[UUID] | None = None) -> int:
    """Go on with these deletions, or with any. Returns how many were taken up."""
    store, connection = transaction.store, transaction.connection
    rows = await store.take_deleted(connection, _AT_ONCE, ids)
    calendars = await store.calendars() if rows else {}
    for row in rows:
        transaction.spend(await store.skip_unstarted(connection, row["id"], transaction.left))
        if row["source"] != "backfill":
            await _note_undecided(transaction, row, calendars.get(row["namespace"], {}))
        if transaction.left == 0:
            break
        await store.delete_on(connection, row["id"])
    return len(rows)


async def _note_undecided(
    transaction: ScheduleTransaction, row: Any, calendars: Mapping[str, NamedCalendar]
) -> None:
    """Record that what was due at the deletion doesn't run."""
    cursor: datetime = row["cursor"]
    for stretch in await transaction.stretches(row, calendars, row["deleted_at"]):
        assert stretch.ends is not None
        while stretch.compiled is not None and transaction.left:
            recurrence, limit = stretch.compiled.recurrence, min(transaction.left, BATCH)
            planning = partial(_entries, row, recurrence, stretch.ends, cursor, limit)
            entries = await transaction.compute(planning)
            if not entries:
                break
            try:
                await transaction.fire(entries, [])
            except Exception as error:
                if not blames_the_data(error):
                    raise
                break  # as of one that can't be read: others must not wait for it
            cursor = entries[-1].due_at
        if transaction.left == 0:
            break
        # Nothing is known of a version that can't be read; the next one begins where it ended.
        cursor = max(cursor, stretch.ends)
    advance = Advance(row["id"], cursor, None, 0, row["undecided_version"])
    await transaction.store.fire(transaction.connection, [], [advance])


def _entries(
    row: Any, recurrence: Recurrence, ends: datetime, cursor: datetime, limit: int, _spend: Spend
) -> list[Entry]:
    """Return the next ones; none when there are no more, or when the rule fails."""
    try:
        return [
            to_entry(row, found, None, "deleted" if found.excluded_by is None else "excluded")
            for found in recurrence.up_to(ends).after(cursor, limit)
        ]
    except Exception:  # noqa: BLE001
        return []  # a rule that fails has nothing to say
