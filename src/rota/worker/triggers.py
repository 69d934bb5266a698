"""Turns messages of brokers into jobs, exactly once.

Protocol. A trigger is a row with the position of the last message that was read. One node at a time
reads (`reader`, with a lease): that only spares the broker. After reading messages from after the
position, one transaction moves the position from what it was to that of the last message, and stores
the jobs of all of them; messages that can't become a call are stored as failed jobs, in the dead
letters. If the position is another by now, the transaction changes nothing: somebody else has stored
these messages, or a person has paused or rewound the trigger.

If we die before the commit, nothing happened; after it, the position says so. An answer to a commit
that was lost is found in the position. Nothing is acknowledged to the broker, and nothing that it
remembers about readers is used: it may forget or rewind that as it likes.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from time import monotonic
from typing import Any
from uuid import UUID

import msgspec

from rota.app import App
from rota.errors import RotaError
from rota.model import Failure
from rota.operations.triggers import Message, TriggerSpec
from rota.runtime.heartbeat import Heartbeat
from rota.runtime.ticker import Service
from rota.store.database import Database
from rota.store.rows import NewJob
from rota.task import SubmitOptions
from rota.worker.sources import Read, SourceUnavailable, open_source

log = logging.getLogger("rota.triggers")

_LEASE = 15.0  # seconds for which a node reads without saying so again
_WAIT = 1.0  # for messages, in one tick
_LAG_EVERY = 5.0
_LONGEST_SHOWN = 20_000  # bytes of a message's body that are kept in a dead letter


class Batch(msgspec.Struct):
    """The jobs and dead letters of some messages."""

    jobs: list[NewJob] = msgspec.field(default_factory=list)
    dead: list[tuple[NewJob, Failure]] = msgspec.field(default_factory=list)
    skipped: int = 0


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

    async def tick(self) -> float:
        if not self._declared:
            await self._database.fetch(
                "declare_trigger", *self._key, self._spec.task, self._spec.address.shown
            )
            self._declared = True
        rows = await self._database.fetch(
            "read_trigger", *self._key, self._heartbeat.node_id, _LEASE
        )
        if not rows:
            self._declared = False  # another node reads; or it was removed, and is declared again
            return _LEASE / 3
        try:
            return await self._read(rows[0])
        except SourceUnavailable as error:
            await self._database.fetch("note_trigger", *self._key, None, str(error)[:500])
            raise

    async def _read(self, row: Any) -> float:
        if not row["started"]:
            position = await self._source.end() if self._spec.start == "new" else None
            await self._database.fetch("start_trigger", *self._key, position)
            return 0.0
        if row["paused"]:
            await self._note_lag(row["position"])
            return _WAIT
        read = await self._source.read(row["position"], self._spec.batch, _WAIT)
        if read.position != row["position"]:
            await self._store(row["position"], read)
        await self._note_lag(read.position)
        return 0.0

    async def _store(self, before: str | None, read: Read) -> None:
        batch = decide(self._app, self._spec, read.messages)
        async with self._database.transaction("trigger") as connection:
            moved = await self._database.fetch(
                "advance_trigger", *self._key, before, read.position, len(batch.jobs),
                batch.skipped, len(batch.dead), on=connection,
            )  # fmt: skip
            if not moved:
                log.info("trigger %s was moved by somebody else", self._spec.name)
                return
            dead = sorted(batch.dead, key=lambda each: each[0].id)
            jobs = [*batch.jobs, *(job for job, _ in dead)]
            if jobs:
                await self._app.rota.submissions.store_within(connection, jobs)
            if dead:
                await self._database.fetch(
                    "bury_messages", [job.id for job, _ in dead],
                    [msgspec.json.encode(failure).decode() for _, failure in dead], on=connection,
                )  # fmt: skip

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


def decide(app: App, spec: TriggerSpec, messages: Sequence[Message]) -> Batch:
    """Make jobs of messages. One that can't become a call becomes a dead letter."""
    batch = Batch()
    task = app.tasks[spec.task]
    new_call = app.rota.submissions.new_call
    for message in messages:
        about = {"trigger": spec.name, "position": message.position}
        options = SubmitOptions.checked(headers=about)
        try:
            if spec.where is not None and not spec.where(message):
                batch.skipped += 1
                continue
            call = _arguments(spec, message)
            batch.jobs.append(new_call(task, options, (), call))
        except Exception as error:  # noqa: BLE001 - a message must not stop those after it
            body = message.body[:_LONGEST_SHOWN].decode("utf-8", "replace").replace("\0", "\ufffd")
            shown = {"$message": {"body": body, "headers": dict(message.headers), **about}}
            job = app.rota.submissions.new_unchecked(task, options, shown)
            batch.dead.append((job, Failure(type(error).__name__, _said(error))))
    return batch


def _arguments(spec: TriggerSpec, message: Message) -> dict[str, Any]:
    found = message.json() if spec.arguments is None else spec.arguments(message)
    if not isinstance(found, dict):
        raise TypeError(
            f"the arguments must be an object of names and values, not {type(found).__name__}"
        )
    return found


def _said(error: Exception) -> str:
    where = "" if isinstance(error, RotaError) else "the message could not be turned into a call: "
    return f"{where}{error}".replace("\0", "\ufffd")
