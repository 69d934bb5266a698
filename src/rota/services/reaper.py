"""Returns the jobs of dead nodes.

Protocol. A node whose lease ran out by the database's clock is declared dead: from then on its
heartbeats and claims are refused. In a second transaction the batches of nodes that aren't alive are
locked, the jobs that they still hold are looked at under lock and judged, each moves on under its own
(node, token) guard, and the batch rows go. Dying anywhere rolls back one transaction, which the next
reaper repeats. Two reapers skip each other's locks.

A reaper that couldn't reach the database doesn't know who was silent and who was only cut off like
itself: after an interruption it gives everyone a lease's time to be heard again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from time import monotonic
from typing import Any
from uuid import UUID

from rota.config import Settings
from rota.core.lifecycle import End, GiveBack, Tried, TryAgain, judge_lost
from rota.errors import StoreUnavailable
from rota.model import Guarantee, OutcomeKind
from rota.services.entries import attempt_entry, encode_failure
from rota.store.work import Ended, Retried, Returned, UpkeepStore

log = logging.getLogger("rota.reaper")

_BATCHES = 20


class Reaper:
    name = "reaper"

    def __init__(self, store: UpkeepStore, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._patient_until = 0.0

    async def tick(self) -> float:
        try:
            if monotonic() >= self._patient_until:
                await self._declare_dead()
            taken = await self._reap()
        except StoreUnavailable:
            self._patient_until = monotonic() + self._settings.lease_seconds
            raise
        return 0.0 if taken == _BATCHES else self._settings.heartbeat / 2

    async def _declare_dead(self) -> None:
        for node in await self._store.declare_dead():
            log.warning(
                "node %s (%s, pid %s) is dead: silent for %.1f s",
                node["name"], node["host"], node["pid"], node["silent"],
            )  # fmt: skip

    async def _reap(self) -> int:
        database = self._store.database
        async with database.transaction("reap") as connection:
            batches = await connection.fetch(database.queries["take_abandoned"], _BATCHES)
            for node in sorted({batch["node"] for batch in batches}):
                mine = [batch for batch in batches if batch["node"] == node]
                await self._reap_node(connection, node, mine)
        return len(batches)

    async def _reap_node(self, connection: Any, node: UUID, batches: Sequence[Any]) -> None:
        queries, work = self._store.database.queries, self._store.work
        tokens = [batch["token"] for batch in batches]
        lanes = [batch["lane"] for batch in batches]
        held = await connection.fetch(queries["held_jobs"], node, tokens, lanes)
        ended, retried, returned = self._judge(node, held)
        now = 0.0
        if ended:
            await work.finish_ended(node, ended, now, connection)
        if retried:
            await work.finish_retried(node, retried, now, connection)
        if returned:
            await work.give_back(node, returned, connection)
        await connection.fetch(queries["close_reaped"], node, tokens, lanes)
        if held:
            log.warning(
                "returned %d jobs of dead node %s, failed or cancelled %d",
                len(retried) + len(returned), node, len(ended),
            )  # fmt: skip

    def _judge(
        self, node: UUID, held: Sequence[Any]
    ) -> tuple[list[Ended], list[Retried], list[Returned]]:
        ended: list[Ended] = []
        retried: list[Retried] = []
        returned: list[Returned] = []
        for row in held:
            tried = Tried(
                row["attempt"], row["max_attempts"], Guarantee(row["guarantee"]), row["crashes"]
            )
            verdict = judge_lost(
                tried, started=row["started"], cancelled=row["cancelled"],
                max_crashes=self._settings.max_crashes,
            )  # fmt: skip
            id, token, ran = row["id"], row["token"], row["ran"]
            failure = verdict.failure if isinstance(verdict, End) else None
            entry = attempt_entry(row["attempt"], OutcomeKind.LOST, token, node, failure)
            match verdict:
                case GiveBack():
                    returned.append(Returned(id, token))
                case TryAgain():
                    retried.append(Retried(id, token, 0.0, entry, verdict.crashes, ran, 0.0))
                case End():
                    error = encode_failure(verdict.failure)
                    ended.append(
                        Ended(id, token, verdict.state, entry, error, verdict.crashes, ran, 0.0)
                    )
        return ended, retried, returned
