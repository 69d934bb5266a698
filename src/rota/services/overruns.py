"""Ends the attempts of workers over HTTP that take longer than they may.

A node stops its own handlers. A worker over HTTP is asked to do the same, and nobody can make it: it may
send heartbeats for ever while a handler hangs. So an attempt's lease ends with its timeout.

Protocol. Every scheduler looks, by the database's clock, for attempts of such workers that were begun
longer ago than their timeout and the `kill_grace` that is left to the worker to report it by itself.
Each is judged as a timeout under the job's row lock, and moves on under its (node, token) guard. The
worker learns of it by its next heartbeat, or when what it still says is refused as stale. Dying anywhere
rolls back one transaction, which the next look repeats; two who look skip each other's locks.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from rota.config import Settings
from rota.model import Failure, Outcome, OutcomeKind, Retry
from rota.services.rulings import Rulings
from rota.store.remote import decode_retry
from rota.store.work import UpkeepStore
from rota.task import Task

log = logging.getLogger("rota.overruns")

_INTERVAL = 2.0
_BATCH = 200


class Overruns:
    name = "overruns"

    def __init__(
        self, store: UpkeepStore, tasks: Mapping[str, Task[..., Any]], settings: Settings
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._settings = settings

    async def tick(self) -> float:
        grace = self._settings.kill_grace
        if not await self._store.database.fetchval("has_overruns", grace):
            return _INTERVAL
        database = self._store.database
        async with database.transaction("overrun") as connection:
            taken = await connection.fetch(database.queries["take_overruns"], grace, _BATCH)
            for node in sorted({row["node"] for row in taken}):
                await self._end(connection, node, [row for row in taken if row["node"] == node])
        return 0.0 if len(taken) == _BATCH else _INTERVAL

    async def _end(self, connection: Any, node: UUID, rows: list[Any]) -> None:
        rulings = Rulings(node, self._settings.max_crashes)
        for row in rows:
            message = (
                f"took longer than its timeout of {row['timeout']:g} s; its worker said nothing"
            )
            outcome = Outcome(OutcomeKind.TIMED_OUT, failure=Failure("TimedOut", message))
            rulings.rule(row, outcome, self._retry(row))
        await rulings.write(self._store.work, connection)
        query = self._store.database.queries["close_finished"]
        await connection.fetch(query, node, sorted({row["token"] for row in rows}))
        log.warning("ended %d attempts of worker %s that took too long", len(rows), node)

    def _retry(self, row: Any) -> Retry:
        if row["retry"] is not None:
            return decode_retry(row["retry"])
        task = self._tasks.get(row["task"])
        return task.options_.retry if task is not None else Retry()
