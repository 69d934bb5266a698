"""Ends the attempts of workers over HTTP that take longer than they may.

A node stops its own handlers. A worker over HTTP is asked to do the same, and nobody can make it: it may
send heartbeats for ever while a handler hangs. So an attempt's lease ends with its timeout.

Protocol. Every scheduler looks, by the database's clock, for attempts of such workers that were begun
longer ago than their timeout (or the maximum run time of their queue or the installation) and the
`kill_grace` that is left to the worker to report it by itself; and, of workers that registered a
`heartbeat_timeout` for a task, for attempts that gave no sign of life for too long. Each is judged as a
timeout under the job's row lock, and moves on under its (node, token) guard. The worker learns of it by
its next heartbeat, or when its next report is refused as stale. Dying anywhere rolls back one
transaction, which the next tick repeats; two schedulers skip each other's locks.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from rota.config import Settings
from rota.runtime.attempts import Verdicts, retry_of, to_held
from rota.runtime.ticker import Service
from rota.runtime.work import Work
from rota.store.events import EventStore
from rota.store.remote import decode_retry
from rota.store.work import UpkeepStore
from rota.task import Task
from rota.worker.runners.results import describe_maximum, outcome_of_stop, stop_event

log = logging.getLogger("rota.overruns")

_INTERVAL = 2.0
_BATCH = 200


class Overruns(Service):
    name = "overruns"

    def __init__(
        self, store: UpkeepStore, tasks: Mapping[str, Task[..., Any]], settings: Settings
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._settings = settings
        self._events = EventStore(store.database)

    async def tick(self) -> float:
        grace, most = self._settings.kill_grace, self._settings.max_run_time or None
        if not await self._store.database.fetchval("has_overruns", grace, most):
            return _INTERVAL
        database = self._store.database
        async with database.transaction("overrun") as connection:
            taken = await connection.fetch(database.queries["take_overruns"], grace, _BATCH, most)
            for node in sorted({row["node"] for row in taken}):
                await self._end(connection, node, [row for row in taken if row["node"] == node])
        for namespace in sorted({row["namespace"] for row in taken}):
            stopped = [self._to_stopped(row) for row in taken if row["namespace"] == namespace]
            await self._events.add(namespace, [stop_event(work) for work in stopped])
        return 0.0 if len(taken) == _BATCH else _INTERVAL

    async def _end(self, connection: Any, node: UUID, rows: list[Any]) -> None:
        verdicts = Verdicts(node, self._settings.max_crashes)
        for row in rows:
            work = self._to_stopped(row)
            given = row["retry"]
            retry = retry_of(self._tasks, work.task) if given is None else decode_retry(given)
            verdicts.judge(work, outcome_of_stop(work), retry, row["ran"])
        await verdicts.write(self._store.work, connection, apart=True)
        query = self._store.database.queries["close_finished"]
        await connection.fetch(query, node, sorted({row["token"] for row in rows}))
        log.warning("ended %d attempts of worker %s that took too long", len(rows), node)

    def _to_stopped(self, row: Any) -> Work:
        """Make a work of the row that says why it is stopped."""
        work, most = to_held(row), row["max_run_time"]
        if not row["is_over"]:
            work.stopping, work.heartbeat_timeout = "heartbeat", row["heartbeat_timeout"]
        elif row["timeout"] is not None:
            work.stopping, work.timeout = "timeout", row["timeout"]
        elif most is not None:
            work.stopping, work.maximum = "maximum", describe_maximum(most, row["queue"])
        else:
            most = self._settings.max_run_time
            work.stopping, work.maximum = "maximum", describe_maximum(most)
        return work
