"""Returns the jobs of dead nodes, and ends attempts of workers over HTTP that take too long.

Protocol. A node whose lease ran out by the database's clock is declared dead: from then on its
heartbeats and claims are refused. In a second transaction the batches of nodes that aren't alive are
locked, the jobs that they still hold are looked at under lock and judged, each moves on under its own
(node, token) guard, and the batch rows go. A batch with many jobs of others between its own is looked
through in parts, one in each transaction; what was looked through is cut off the batch. Dying anywhere
rolls back one transaction, which the next reaper repeats. Two reapers skip each other's locks. What
can't be written together is written apart, each part in a savepoint: a row that the database refuses
fails by itself, a batch that it can't write at the moment is left for later, and neither keeps the
others from moving on.

A reaper that couldn't reach the database doesn't know which nodes were silent and which were only cut
off like itself: after an interruption it gives every node a lease's time to send a heartbeat again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any
from uuid import UUID

import asyncpg

from rota.config import Settings
from rota.errors import StoreUnavailable
from rota.runtime.attempts import Verdicts, retry_of, to_held
from rota.runtime.ticker import Service
from rota.runtime.work import Work
from rota.store.batches import Batch
from rota.store.driver_errors import FAREWELLS
from rota.store.events import EventStore
from rota.store.remote import decode_retry
from rota.store.work import UpkeepStore
from rota.task import Task
from rota.worker.runners.results import describe_maximum, outcome_of_stop, stop_event

log = logging.getLogger("rota.reaper")

_BATCHES = 20
_OVERRUNS_EVERY = 2.0
_OVERRUNS = 200  # a transaction
_LATER_SECONDS = 10.0  # before a batch that could not be written is tried again


class Reaper(Service):
    name = "reaper"

    def __init__(self, store: UpkeepStore, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._patient_until = 0.0
        self._parts_left = False  # parts of batches that are still to be looked at
        self._later: dict[int, float] = {}  # batches that can't be written now, and until when

    async def tick(self) -> float:
        try:
            if monotonic() >= self._patient_until:
                for node in await self._store.declare_dead():
                    log.warning(
                        "node %s (%s, pid %s) is dead: silent for %.1f s",
                        node["name"], node["host"], node["pid"], node["silent"],
                    )  # fmt: skip
            taken = await self._reap()
        except StoreUnavailable:
            self._patient_until = monotonic() + self._settings.lease_seconds
            raise
        return 0.0 if taken == _BATCHES or self._parts_left else self._settings.heartbeat / 2

    async def _reap(self) -> int:
        database, now = self._store.database, monotonic()
        self._later = {token: until for token, until in self._later.items() if until > now}
        problems: list[Exception] = []
        self._parts_left = False
        async with database.transaction("reap") as connection:
            batches = await connection.fetch(
                database.queries["take_abandoned"], _BATCHES, list(self._later)
            )
            for node in sorted({batch["node"] for batch in batches}):
                mine = [batch for batch in batches if batch["node"] == node]
                problems += await self._reap_apart(connection, node, mine)
        if problems:
            log.warning(
                "%d batches of dead nodes are left for later: %s", len(problems), problems[0]
            )
        return len(batches)

    async def _reap_apart(
        self, connection: Any, node: UUID, batches: Sequence[Any]
    ) -> list[Exception]:
        """Reap as many of them as can be written. Return the errors of the others."""
        try:
            async with connection.transaction():  # a savepoint
                await self._reap_node(connection, node, batches)
            return []
        except FAREWELLS:
            raise
        except asyncpg.PostgresError as error:
            if len(batches) == 1:
                self._later[batches[0]["token"]] = monotonic() + _LATER_SECONDS
                return [error]
        return [
            problem
            for batch in batches
            for problem in await self._reap_apart(connection, node, [batch])
        ]

    async def _reap_node(self, connection: Any, node: UUID, batches: Sequence[Any]) -> None:
        store = self._store.work.batches
        wanted = [Batch(batch["token"], batch["lane"]) for batch in batches]
        parts = await store.parts(node, wanted, connection)
        held = await store.held_jobs(node, parts, connection)
        failed = await self._move(connection, node, held)
        if await store.close_parts(node, parts, connection) and not all(p.last for p in parts):
            self._parts_left = True
        if held:
            log.warning(
                "returned %d jobs of dead node %s, failed or cancelled %d",
                len(held) - failed, node, failed,
            )  # fmt: skip

    async def _move(self, connection: Any, node: UUID, held: Sequence[Any]) -> int:
        """Apply a verdict to each. Return how many ended."""
        verdicts = Verdicts(node, self._settings.max_crashes)
        for row in held:
            verdicts.judge_lost(
                to_held(row), started=row["started"], cancelled=row["cancelled"], ran=row["ran"]
            )
        await verdicts.write(self._store.work, connection, apart=True)
        return len(verdicts.ended)


class Overruns(Service):
    """Ends the attempts of workers over HTTP that take longer than they may.

    A node stops its own handlers. A worker over HTTP is asked to do the same, and nobody can make it: it
    may send heartbeats for ever while a handler hangs. So an attempt's lease ends with its timeout.

    Protocol. Every scheduler looks, by the database's clock, for attempts of such workers that began
    longer ago than their timeout (or the maximum run time of their queue or the installation) and the
    `kill_grace` that is left to the worker to report it by itself; and, of workers that registered a
    `heartbeat_timeout` for a task, for attempts that gave no sign of life for too long. Each is judged
    as a timeout under the job's row lock, and moves on under its (node, token) guard. The worker learns
    of it by its next heartbeat, or when its next report is refused as stale. Dying anywhere rolls back
    one transaction, which the next tick repeats; two schedulers skip each other's locks.
    """

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
            return _OVERRUNS_EVERY
        database = self._store.database
        async with database.transaction("overrun") as connection:
            taken = await connection.fetch(
                database.queries["take_overruns"], grace, _OVERRUNS, most
            )
            for node in sorted({row["node"] for row in taken}):
                await self._end(connection, node, [row for row in taken if row["node"] == node])
        for namespace in sorted({row["namespace"] for row in taken}):
            stopped = [self._to_stopped(row) for row in taken if row["namespace"] == namespace]
            await self._events.add(namespace, [stop_event(work) for work in stopped])
        return 0.0 if len(taken) == _OVERRUNS else _OVERRUNS_EVERY

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
