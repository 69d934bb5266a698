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
from rota.core.durations import format_duration
from rota.model import Retry
from rota.runtime.attempts import Verdicts, retry_of, to_held
from rota.runtime.ticker import Service
from rota.runtime.work import StopReason
from rota.store.events import EventStore, Noticed, timed_out
from rota.store.remote import decode_retry
from rota.store.work import UpkeepStore
from rota.task import Task
from rota.worker.runners.failures import stopped_outcome

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
            own = [self._noticed(row) for row in taken if row["namespace"] == namespace]
            await self._events.add(namespace, own)
        return 0.0 if len(taken) == _BATCH else _INTERVAL

    async def _end(self, connection: Any, node: UUID, rows: list[Any]) -> None:
        verdicts = Verdicts(node, self._settings.max_crashes)
        for row in rows:
            reason, message = self._why(row)
            outcome = stopped_outcome(reason, message)
            verdicts.judge(to_held(row), outcome, self._retry(row), row["ran"])
        await verdicts.write(self._store.work, connection, apart=True)
        query = self._store.database.queries["close_finished"]
        await connection.fetch(query, node, sorted({row["token"] for row in rows}))
        log.warning("ended %d attempts of worker %s that took too long", len(rows), node)

    def _why(self, row: Any) -> tuple[StopReason, str]:
        """Return why it is stopped, also in words."""
        if not row["is_over"]:
            allowed = format_duration(row["heartbeat_timeout"])
            return "heartbeat", (
                f"gave no sign of life for longer than its heartbeat_timeout of {allowed}"
            )
        if row["timeout"] is not None:
            allowed = format_duration(row["timeout"])
            return "timeout", f"ran longer than its timeout of {allowed}, and no report arrived"
        if row["max_run_time"] is not None:
            whose, most = f"queue {row['queue']!r}", row["max_run_time"]
        else:
            whose, most = "the installation", self._settings.max_run_time
        allowed = format_duration(most)
        return "maximum", f"ran longer than the maximum run time of {whose}, {allowed}"

    def _noticed(self, row: Any) -> Noticed:
        reason, message = self._why(row)
        return timed_out(row["task"], row["id"], row["attempt"], reason, message)

    def _retry(self, row: Any) -> Retry:
        if row["retry"] is not None:
            return decode_retry(row["retry"])
        return retry_of(self._tasks, row["task"])
