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
from rota.core.time.schedule import compile_schedule
from rota.lib.computing import Compute, Spend, compute_here
from rota.operations.firing import Compiled
from rota.operations.settling import BATCH, Budget, stretches_of
from rota.store.database import blames_the_data
from rota.store.schedules import SKIPPED, Advance, Entry, ScheduleStore

_AT_ONCE = 20  # schedules and lines that one transaction takes up


async def delete_locked(
    store: ScheduleStore, connection: Any, row: Any, budget: Budget, compute: Compute = compute_here
) -> None:
    """Delete a schedule whose row is locked, or begin to."""
    ends = max(row["now"], row["cursor"])
    ids = await store.mark_deleted(connection, row["namespace"], row["name"], ends)
    await _go_on(store, connection, budget, compute, ids)


async def finish_deletions(store: ScheduleStore) -> bool:
    """One step; whether there is more to do."""
    budget = Budget()
    async with store.database.shared_transaction("finish_deletions") as connection:
        taken = await _go_on(store, connection, budget, compute_here)
    return taken == _AT_ONCE or budget.left == 0


async def _go_on(
    store: ScheduleStore, connection: Any, budget: Budget, compute: Compute,
    ids: Sequence[UUID] | None = None,
) -> int:  # fmt: skip
    """How many were taken up, of all or of these."""
    rows = await store.take_deleted(connection, _AT_ONCE, ids)
    calendars = await store.calendars() if rows else {}
    for row in rows:
        budget.spend(await store.skip_unstarted(connection, row["id"], budget.left))
        if row["source"] != "backfill":
            own = calendars.get(row["namespace"], {})
            await _note_undecided(store, connection, row, own, budget, compute)
        if budget.left == 0:
            break
        await store.delete_on(connection, row["id"])
    return len(rows)


async def _note_undecided(
    store: ScheduleStore, connection: Any, row: Any, calendars: Mapping[str, NamedCalendar],
    budget: Budget, compute: Compute,
) -> None:  # fmt: skip
    """Note that what was due when it was deleted doesn't run."""
    stretches = await stretches_of(
        store, connection, row, lambda spec: compile_schedule(spec, calendars), row["deleted_at"],
        compute,
    )  # fmt: skip
    cursor: datetime = row["cursor"]
    for stretch in stretches:
        assert stretch.ends is not None
        while stretch.compiled is not None and budget.left:
            limit, ends = min(budget.left, BATCH), stretch.ends
            planning = partial(_entries, row["id"], stretch.compiled, ends, cursor, limit)
            entries = await compute(planning)
            if not entries:
                break
            try:
                async with connection.transaction():  # a savepoint
                    await store.fire(connection, entries, [])
            except Exception as error:
                if not blames_the_data(error):
                    raise
                break  # as of one that can't be read: others must not wait for it
            budget.spend(len(entries))
            cursor = entries[-1].due_at
        if budget.left == 0:
            break
        # Nothing is known of a version that can't be read; the next one begins where it ended.
        cursor = max(cursor, stretch.ends)
    await store.fire(connection, [], [Advance(row["id"], cursor, None, 0, row["behind"])])


def _entries(
    id: UUID, compiled: Compiled, ends: datetime, cursor: datetime, limit: int, _spend: Spend
) -> list[Entry]:
    """The next ones; none when there are no more, or when the rule fails."""
    try:
        return [
            Entry(
                id, found.nominal, found.due_at, SKIPPED,
                "excluded" if found.excluded_by is not None else "deleted", False, None, None,
            )
            for found in compiled.recurrence.up_to(ends).after(cursor, limit)
        ]  # fmt: skip
    except Exception:  # noqa: BLE001
        return []  # a rule that fails has nothing to say
