"""Fires schedules: every occurrence gets its row in the ledger, and at most one job.

Protocol. In one transaction: lock the shards that this scheduler owns under their epochs (an owner whose
epoch is over fires nothing, and steps down), lock the schedules that are due within the horizon
(passing over those that another scheduler has), plan each purely from its rule and its cursor, write
ledger rows, the jobs of those that are new there, and the schedules' new cursors. Dying before the
commit leaves nothing, and the next tick plans the same again; two firers can't hold the same schedule,
and if they could, the ledger's key (schedule, due time) would let only one of them make the job.

Schedules of other shards are swept for what their owner has missed, as in the releaser.

An occurrence whose time has come while nobody fired is found the same way, later: the plan says by
the schedule's catch-up policy whether it still runs. Work per tick is bounded: what doesn't fit is
planned by the next tick, at once.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from time import monotonic
from typing import Any
from uuid import UUID

from rota.core.time.schedule import compile_schedule
from rota.errors import RotaError
from rota.firing import Compiled, plan_row, to_advance, to_entries
from rota.services.turns import Ownership, Turns
from rota.store.schedules import Advance, Entry, ScheduleStore, decode_spec

log = logging.getLogger("rota.firer")

_SCHEDULES = 1_000  # a transaction
_OCCURRENCES = 200  # of one schedule in a transaction
_INTERVAL = 0.25
_PROMOTIONS = 500
_CALENDARS_SECONDS = 5.0


class Firer:
    name = "firer"

    def __init__(
        self, store: ScheduleStore, ownership: Ownership, interval: float = _INTERVAL
    ) -> None:
        self._store = store
        self._ownership = ownership
        self._turns = Turns(ownership)
        self._interval = interval
        self._compiled: dict[UUID, Compiled] = {}
        self._calendars: dict[str, Any] = {}
        self._calendars_until = 0.0

    async def tick(self) -> float:
        shards, epochs = self._turns.next()
        if not shards:
            return self._interval
        work = await self._store.work(shards, epochs)
        self._ownership.lost(work.lost)
        if work.resume:
            for name in await self._store.resume_due():
                log.info("schedule %s goes on: its pause is over", name)
        promoted = await self._store.promote_waiting(_PROMOTIONS) if work.waiting else 0
        more = await self._fire(shards, epochs) if work.due or work.resume else False
        return 0.0 if more or promoted == _PROMOTIONS else self._interval

    async def _fire(self, shards: Sequence[int], epochs: Sequence[int | None]) -> bool:
        """Whether there is more to do at once."""
        async with self._store.database.transaction("fire") as connection:
            rows = await self._store.due_schedules(connection, shards, epochs, _SCHEDULES)
            entries: list[Entry] = []
            advances: list[Advance] = []
            more = len(rows) == _SCHEDULES
            for row in rows:
                try:
                    compiled = await self._compile(row)
                except RotaError as error:
                    advances.append(self._set_aside(row, error))
                    continue
                planned = plan_row(row, compiled, limit=_OCCURRENCES)
                own = to_entries(row, planned)
                entries += own
                advances.append(to_advance(row, planned, own))
                more = more or planned.more
            await self._store.fire(connection, entries, advances)
        return more

    async def _compile(self, row: Any) -> Compiled:
        known = self._compiled.get(row["id"])
        if known is None or known.version != row["version"]:
            spec = decode_spec(row["spec"])
            calendars = await self._named_calendars() if spec.exclude or spec.include else {}
            recurrence = compile_schedule(spec, calendars.get(row["namespace"]))
            known = Compiled(row["version"], spec, recurrence)
            if not calendars:  # one that names calendars is read anew: they change without it
                self._compiled[row["id"]] = known
        return known

    async def _named_calendars(self) -> dict[str, Any]:
        if monotonic() >= self._calendars_until:
            self._calendars = await self._store.calendars()
            self._calendars_until = monotonic() + _CALENDARS_SECONDS
        return self._calendars

    def _set_aside(self, row: Any, error: RotaError) -> Advance:
        """One that can't be read any more (a calendar is gone, say) must not stop the others."""
        log.error("schedule %s is set aside until it is updated: %s", row["name"], error)
        return Advance(row["id"], row["cursor"], None, 0)
