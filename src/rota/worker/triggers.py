"""Turns messages of brokers into jobs, exactly once.

Protocol. A trigger is a row with the position of the last message that was read. One node at a time
reads (`reader`, with a lease): that only spares the broker. After reading messages from after the
position, one transaction moves the position from what it was to that of the last message, and stores
the jobs of all of them; messages that can't become a call are stored as failed jobs, in the dead
letters. If the position is another by now, the transaction changes nothing: somebody else has stored
these messages, or a person has paused or rewound the trigger.

If the queue has no room for a batch, or the database refuses one because of what is in it, half of it
is tried, and in the end one message: it waits until there is room, or becomes a dead letter. Two
releases may declare a trigger with different sources: it is read from one of them at a time, as long
as a node that declares that one reads, and the positions of the others are kept (`declare_trigger`).

If we die before the commit, nothing happened; after it, the position says so. An answer to a commit
that was lost is found in the position. Nothing is acknowledged to the broker, and nothing that it
remembers about readers is used: it may forget or rewind that as it likes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import Any
from uuid import UUID

from rota.app import App
from rota.errors import QueueFull, SubmitError
from rota.operations.triggers import TriggerSpec
from rota.runtime.heartbeat import Heartbeat
from rota.runtime.ticker import Service
from rota.store.database import Database
from rota.store.driver_errors import blames_the_data
from rota.store.rows import NewJob
from rota.worker.messages import Batch, bury, decide, errors_of
from rota.worker.sources import Read, SourceUnavailable, open_source

log = logging.getLogger("rota.triggers")

_LEASE = 15.0  # seconds for which a node reads without saying so again
_WAIT = 1.0  # for messages, in one tick
_LAG_EVERY = 5.0
_LARGEST_WRITE = 8_000_000  # bytes of payloads that one statement stores


class TriggerReader(Service):
    """Reads one trigger."""

    def __init__(
        self, app: App, database: Database, heartbeat: Heartbeat, spec: TriggerSpec
    ) -> None:
        self.name = f"trigger {spec.name}"
        self._app, self._database, self._heartbeat = app, database, heartbeat
        self._spec = spec
        self._key = (app.settings.namespace, spec.name)
        self._source = open_source(spec, database, app.settings.namespace)
        self._declared = False
        self._lag_at = 0.0
        self._most = spec.batch  # messages to read next: fewer while they don't fit
        self._elsewhere = (
            spec.source
        )  # where the trigger is read from, as far as we have told people

    async def tick(self) -> float:
        node, source = self._heartbeat.node_id, self._spec.source
        if not self._declared:
            await self._database.fetch("declare_trigger", *self._key, self._spec.task, source, node)
            self._declared = True
        rows = await self._database.fetch("read_trigger", *self._key, node, _LEASE, source)
        if not rows:
            self._declared = False  # another node reads; or it was removed, and is declared again
            await self._look_elsewhere()
            return _LEASE / 3
        self._elsewhere = source
        try:
            return await self._read(rows[0])
        except SourceUnavailable as error:
            await self._database.fetch("note_trigger", *self._key, None, str(error)[:500])
            raise
        except QueueFull as error:
            self._most = max(self._most // 2, 1)
            await self._database.fetch("note_trigger", *self._key, None, str(error)[:500])
            return min(error.retry_after or _WAIT, _WAIT) if self._most == 1 else 0.0

    async def _look_elsewhere(self) -> None:
        """Say it once if the trigger is read from another source than our code says."""
        now = await self._database.fetchval("source_of_trigger", *self._key)
        if now is not None and now not in (self._spec.source, self._elsewhere):
            log.warning("trigger %s is read from %s, by a node of another release; the code of this "
                        "node says %s, which is read when no such node is left",
                        self._spec.name, now, self._spec.source)  # fmt: skip
            self._elsewhere = now

    async def _read(self, row: Any) -> float:
        if not row["started"]:
            position = await self._source.end() if self._spec.start == "new" else None
            await self._database.fetch("start_trigger", *self._key, position, self._spec.source)
            return 0.0
        if row["paused"]:
            await self._note_lag(row["position"])
            return _WAIT
        read = await self._source.read(row["position"], self._most, _WAIT)
        if read.position != row["position"]:
            try:
                await self._store(row["position"], read)
            except Exception as error:
                if not (isinstance(error, SubmitError) or blames_the_data(error)):
                    raise
                log.warning("trigger %s: %d messages after %s can't be stored: %s",
                            self._spec.name, len(read.messages), row["position"], error)  # fmt: skip
                if len(read.messages) > 1:  # one of them is to blame
                    self._most = max(len(read.messages) // 2, 1)
                    return 0.0
                dead = [bury(self._app, self._spec, each, error) for each in read.messages]
                await self._store(row["position"], read, Batch(dead=dead))
            self._most = min(self._most * 2, self._spec.batch)
        await self._note_lag(read.position)
        return 0.0

    async def _store(self, before: str | None, read: Read, batch: Batch | None = None) -> None:
        batch = batch or decide(self._app, self._spec, read.messages)
        submissions = self._app.rota.submissions
        async with self._database.transaction("trigger") as connection:
            moved = await self._database.fetch(
                "advance_trigger", *self._key, before, read.position, len(batch.jobs),
                batch.skipped, len(batch.dead), self._spec.source, on=connection,
            )  # fmt: skip
            if not moved:
                log.info("trigger %s was moved by somebody else", self._spec.name)
                return
            dead = sorted(batch.dead, key=lambda each: each[0].id)
            # Apart: dead letters are not unique, whatever the task is.
            for jobs in (*_portions(batch.jobs), *_portions([job for job, _ in dead])):
                await submissions.store_within(connection, jobs)
            if dead:
                errors = errors_of(self._app.rota.connector.encryption, dead)
                buried = await self._database.fetch(
                    "bury_messages", [job.id for job, _ in dead], errors, on=connection
                )
                if len(buried) != len(dead):  # they must not run: nothing of the batch is stored
                    raise RuntimeError(f"{len(dead) - len(buried)} dead letters were not found")

    async def _note_lag(self, position: str | None) -> None:
        if monotonic() >= self._lag_at:
            self._lag_at = monotonic() + _LAG_EVERY
            lag = await self._source.lag(position)
            await self._database.fetch("note_trigger", *self._key, lag, None)

    async def leave(self) -> None:
        """Let another node read at once."""
        node: UUID = self._heartbeat.node_id
        try:
            await self._database.fetch("leave_trigger", *self._key, node)
            await self._source.close()
        except Exception as error:  # noqa: BLE001 - stopping must go on
            log.warning("trigger %s: %s", self._spec.name, error)


def _portions(jobs: Sequence[NewJob]) -> Iterator[list[NewJob]]:
    """Split jobs into statements of a bounded size: a text of PostgreSQL's has at most 1 GB."""
    portion: list[NewJob] = []
    size = 0
    for job in jobs:
        size += len(bytes(job.payload))
        if portion and size > _LARGEST_WRITE:
            yield portion
            portion, size = [], len(bytes(job.payload))
        portion.append(job)
    if portion:
        yield portion
