"""Operations on bulk actions: what became of their jobs, and how to undo them.

Protocol. A bulk action (`Jobs.change_selected`) is one transaction: it locks the jobs that an undo could
bring back and notes what it takes away from them, acts, notes what it changed in `rota.bulk_change`, and
writes its audit record. If the process dies, none of it happened.

An undo is one transaction as well. It marks the action as undone, which two can't do, and brings back
each job that is still exactly as the action left it: a cancelled job that had not started waits again, a
retried job that no node has claimed since is a dead letter again, a discarded one too. Whatever has
moved on stays where it is and is counted. A job that runs is never taken back. Jobs of schedules, runs
and orders, and those with a unique key, are left out, because others may have taken their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, TypeAlias
from uuid import UUID

from rota.core.bulk import Outcome, outcome_of
from rota.errors import Conflict, NotFound
from rota.lib.ids import new_id
from rota.model import BulkChange, State
from rota.operations.base import Operations
from rota.store.bulk_changes import BulkStore, StoredBulk
from rota.store.changes import current_actor

_COUNTED = 2_000  # jobs whose states are looked up
MOST_REMEMBERED = 2_000  # jobs of which an undo keeps what it needs
Bulks: TypeAlias = list[BulkChange]


class Begun(NamedTuple):
    """A bulk action under way: since when, and what it takes away from jobs, by id."""

    at: datetime
    rows: dict[str, object]


class BulkChanges(Operations):
    """`app.bulk`: actions on many jobs, their progress and their undo. They are kept for a week."""

    async def get(self, id: UUID) -> BulkChange:
        """Return a bulk action with the states of its jobs now."""
        stored = await (await self._store()).get(self._namespace, id)
        if stored is None:
            raise NotFound(f"there is no bulk action {id}: they are kept for a week", subject=id)
        return await self._with_outcome(stored)

    async def list(self, limit: int = 20) -> Bulks:
        """List bulk actions, newest first."""
        stored = await (await self._store()).list(self._namespace, limit)
        return [await self._with_outcome(one) for one in stored]

    async def jobs(self, id: UUID, limit: int = 50) -> Sequence[UUID]:
        """Return the ids of the first jobs of a bulk action."""
        return await (await self._store()).jobs(self._namespace, id, limit)

    async def undo(self, id: UUID) -> BulkChange:
        """Bring back the jobs that are still as the action left them. It can be done once."""
        store = await self._store()
        async with self._changing("undo", f"bulk action {id}") as change:
            before = await self.get(id)
            kept = await store.begin_undo(self._namespace, id)
            if kept is None:
                raise Conflict(f"bulk action {id} was undone already", code="undone", subject=id)
            if not kept.rows:
                raise Conflict(
                    f"bulk action {id} can't be undone: its jobs had started, belong to schedules, "
                    "runs or orders, or are too many", code="not-undoable", subject=id,
                )  # fmt: skip
            undone = await store.bring_back(self._namespace, kept)
            await store.end_undo(self._namespace, id, undone)
            change.before = {"action": before.action, "jobs": before.jobs}
            change.after = {"brought_back": undone}
        return await self.get(id)

    async def begin(self, action: str, ids: Sequence[UUID]) -> Begun:
        """Lock what an undo could bring back. For `Jobs.change_selected`, inside its transaction."""
        at = await (await self._rota.store()).now()
        if len(ids) > MOST_REMEMBERED:
            return Begun(at, {})
        return Begun(at, await (await self._store()).remember(self._namespace, action, ids))

    async def note(self, action: str, changed: Sequence[UUID], begun: Begun) -> UUID:
        """Note what a bulk action has changed. For `Jobs.change_selected`, inside its transaction."""
        id, done = new_id(), {str(each) for each in changed}
        kept = {key: row for key, row in begun.rows.items() if key in done}
        await (await self._store()).add(
            id, self._namespace, action, current_actor().name, changed, kept or None, begun.at
        )
        return id

    async def _with_outcome(self, stored: StoredBulk) -> BulkChange:
        counts = await (await self._store()).outcome(self._namespace, stored.id, _COUNTED)
        states = {State(number).label: count for number, count in sorted(counts.items())}
        outcome: Outcome = outcome_of(stored.action, stored.jobs, states, _COUNTED)
        return BulkChange(
            id=stored.id, action=stored.action, by=stored.actor, at=stored.at, jobs=stored.jobs,
            counted=min(stored.jobs, _COUNTED), states=states, finished=outcome.finished,
            sentence=outcome.sentence,
            can_undo=0 if stored.undone_at else min(stored.remembered, outcome.untouched),
            undone_at=stored.undone_at, undone=stored.undone,
        )  # fmt: skip

    async def _store(self) -> BulkStore:
        return BulkStore(await self._database())
