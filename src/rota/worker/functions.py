"""Serves durable functions on their node: reads and writes their history, under their jobs' tokens.

Protocol. See `rota.durable.replay`. Each write is guarded by (job, token, node). Records of all
functions of a node are written together: while one statement is under way, the next ones gather. A
database that is away is asked again for as long as the node trusts its lease; a statement whose answer
was lost changes nothing when it is repeated. A write that is not accepted means that the job has moved
on: `LeaseLost`, and the function is left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import asyncpg
import msgspec

from rota.core.workflow.model import CheckpointKind, StepState
from rota.durable import wire
from rota.durable.wire import Checkpoint, History, NewCall, NewCheckpoint, NewWait, Suspension
from rota.errors import Fatal, InvalidArguments, LeaseLost, StoreUnavailable
from rota.lib.encryption import is_encrypted
from rota.model import Failure, Outcome, OutcomeKind
from rota.operations.run_advance import RunAdvance
from rota.runtime.heartbeat import Lease
from rota.runtime.work import Work
from rota.store.database import Database
from rota.store.driver_errors import is_bad_value
from rota.store.durable_functions import DurableFunctionStore
from rota.store.encrypted import encrypted_outcome
from rota.store.rows import NewJob, NewRun, decode_new
from rota.worker.chunks import Chunks
from rota.worker.generated import Generated

log = logging.getLogger("rota.functions")

T = TypeVar("T")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0  # seconds between tries while the database is away
_MOST = 500  # records in one statement
_TURNS = 4  # of the event loop, from an answer to the next thing that a function asks for
_DONE = StepState.SUCCEEDED
_KINDS = {int(kind): kind for kind in CheckpointKind}
_STATES = {int(state): state for state in StepState}


class _Entry(NamedTuple):
    work: Work
    new: Any
    answer: asyncio.Future[Any]  # cancelled, if the function was stopped meanwhile

    def give(self, value: Any) -> None:
        if not self.answer.done():
            self.answer.set_result(value)

    def refuse(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)

    def refuse_lost(self) -> None:
        self.refuse(LeaseLost(f"job {self.work.id} is no longer this node's"))


class Functions:
    """The part of a node that durable functions ask: see `Effects.answer`."""

    def __init__(self, database: Database, lease: Lease) -> None:
        self._database = database
        self._store = DurableFunctionStore(database)
        self._lease = lease
        self._opens = _Together(self._write_opens)
        self._records = _Together(self._write_records)
        self._calls = _Together(self._write_calls)
        self.chunks = Chunks(database, lease, self._persistently)
        self.generated = Generated(database, lease, self._persistently)

    def record(self, work: Work, new: Sequence[NewCheckpoint]) -> asyncio.Future[bool]:
        """Record what a function has done. The answer: its run is being cancelled."""
        return self._records.add(work, new)

    async def answer(self, work: Work, name: str, body: bytes) -> bytes:
        """Answer a call of a durable function."""
        if work.run is None or work.step is None or work.step < 0:
            raise Fatal(
                f"{work.task!r} is a durable function, and its job has no run: start one, with "
                f"`rota workflows start {work.task}`"
            )
        match name:
            case wire.OPEN:
                return msgspec.json.encode(await self._open(work))
            case wire.CALL:
                await self._calls.add(work, msgspec.json.decode(body, type=NewCall))
            case wire.RUN:
                await self._call_run(work, msgspec.json.decode(body, type=NewCall))
            case wire.WAIT:
                new = msgspec.json.decode(body, type=NewWait)
                return msgspec.json.encode(await self._wait(work, new))
            case wire.SUSPEND:
                asked = msgspec.json.decode(body, type=Suspension)
                return msgspec.json.encode(await self._suspend(work, asked))
            case wire.RESTART:
                return msgspec.json.encode(await self._restart(work, body))
            case wire.CLOSE:
                await self._close(work, msgspec.json.decode(body, type=wire.RaceEnd))
            case _:
                await self._set_status(work, name, body)
        return b"true"

    async def _set_status(self, work: Work, name: str, body: bytes) -> None:
        if name != wire.STATUS:
            raise InvalidArguments(f"a node has no call {name!r}")
        text = self._sealed(work, "status", body)
        await self._persistently(lambda: self._store.set_run_status(*self._lease_of(work), text))

    def _lease_of(self, work: Work) -> tuple[UUID, UUID, int, UUID]:
        assert work.run is not None
        return self._lease.node_id, work.id, work.token, work.run

    async def _persistently(self, write: Callable[[], Awaitable[T]]) -> T:
        """Repeat a statement while the database is away and the lease is trusted."""
        pause = _FIRST_PAUSE
        while True:
            try:
                return await write()
            except StoreUnavailable:
                if not self._lease.trusted:
                    raise
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    # -- history

    async def _write_opens(self, entries: Sequence[_Entry]) -> None:
        node, leases = self._lease.node_id, [self._lease_of(entry.work)[1:] for entry in entries]
        opened = await self._persistently(lambda: self._store.open_functions(node, leases))
        for entry, rows in zip(entries, opened, strict=True):
            entry.give(rows)

    async def _open(self, work: Work) -> History:
        rows = await self._opens.add(work, None)
        if not rows:
            raise LeaseLost(f"job {work.id} is no longer this node's")
        first = rows[0]
        assert work.run is not None
        return History(
            run=work.run, restarts=first["restarts"], round=first["round"],
            code_version=first["code"] or 1,
            cancelled=first["cancelled"], paused=first["paused"], now=first["now"],
            checkpoints=[
                self._checkpoint(work, row) for row in rows if row["number"] is not None
            ],
        )  # fmt: skip

    def _checkpoint(self, work: Work, row: Any) -> Checkpoint:
        assert work.run is not None
        kind, owner, text = _KINDS[row["kind"]], row["job_id"] or work.run, row["result"]
        if kind is CheckpointKind.RUN and text is not None:
            answer = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
            owner = msgspec.json.decode(answer["job"], type=UUID | None) or owner
            text = bytes(answer["result"]).decode()
        encryption = self._database.encryption
        result = wire.NULL if text is None else msgspec.Raw(encryption.open(text, owner, "result"))
        error = _failure_of(row["error"])
        return Checkpoint(
            number=row["number"], kind=kind, state=_STATES[row["state"]], name=row["name"],
            digest=self._digest_of(work, row["digest"]), attempt=row["attempt"], wake_at=row["wake_at"],
            ended_at=row["ended_at"], result=result, error=encryption.shown_failure(error, owner),
        )  # fmt: skip

    def _sealed(self, work: Work, field: str, value: bytes) -> str:
        """Return a value as it is stored: encrypted, if what the function was given was."""
        if work.encryptor is None:
            return value.decode()
        assert work.run is not None
        return self._database.encryption.for_job(work.run).json(field, value)

    def _sealed_digest(self, work: Work, kind: CheckpointKind, digest: str | None) -> str | None:
        """Return a digest as it is stored: what the arguments were could be guessed from it."""
        if digest is None or work.encryptor is None or kind is CheckpointKind.NOTE:
            return digest
        assert work.run is not None
        return self._database.encryption.for_job(work.run).text("digest", digest)

    def _digest_of(self, work: Work, digest: str | None) -> str | None:
        if digest is None or not is_encrypted(digest):
            return digest
        assert work.run is not None
        return self._database.encryption.open(digest, work.run, "digest").decode()

    # -- recording

    async def _write_records(self, entries: Sequence[_Entry]) -> None:
        rows = [(entry, new) for entry in entries for new in entry.new]
        columns = [self._row(entry.work, new) for entry, new in rows]
        node, blamed = self._lease.node_id, _blamed([entry.work for entry in entries])
        written = await self._persistently(
            lambda: self._store.record_checkpoints(node, columns, blamed)
        )
        for entry in entries:
            run = entry.work.run
            assert run is not None
            answers = [written.get((run, new.number)) for new in entry.new]
            if None in answers:
                entry.refuse_lost()
                continue
            entry.work.crashes = 0
            entry.give(any(answers))

    def _row(self, work: Work, new: NewCheckpoint) -> tuple[Any, ...]:
        error = new.error
        if error is not None and work.encryptor is not None and work.run is not None:
            outcome = Outcome(OutcomeKind.RAISED, failure=error)
            error = encrypted_outcome(self._database.encryption.for_job(work.run), outcome).failure
        return (
            work.id, work.token, work.run, new.number, new.name,
            self._sealed_digest(work, new.kind, new.digest), int(new.kind), int(new.state),
            new.attempt, new.delay, new.ran,
            self._sealed(work, "result", bytes(new.result)) if new.state is _DONE else None,
            None if error is None else msgspec.json.encode(error).decode(),
        )  # fmt: skip

    # -- calls

    async def _write_calls(self, entries: Sequence[_Entry]) -> None:
        encryption = await self._database.known_encryption()
        children = encryption.jobs([decode_new(entry.new.child, NewJob) for entry in entries])
        rows = [
            (entry.work.id, entry.work.token, entry.work.run, entry.new.number, entry.new.name,
             self._sealed_digest(entry.work, CheckpointKind.CALL, entry.new.digest),
             msgspec.json.encode(child).decode())
            for entry, child in zip(entries, children, strict=True)
        ]  # fmt: skip
        node, blamed = self._lease.node_id, _blamed([entry.work for entry in entries])
        made = set(await self._persistently(lambda: self._store.call_jobs(node, rows, blamed)))
        for number, entry in enumerate(entries):
            if number in made:
                entry.work.crashes = 0
                entry.give(True)
            else:
                entry.refuse_lost()

    async def _call_run(self, work: Work, new: NewCall) -> None:
        run = decode_new(new.child, NewRun)
        child = msgspec.json.encode(run).decode()
        digest = self._sealed_digest(work, CheckpointKind.RUN, new.digest)
        call = (new.number, new.name, digest, child)
        blamed = _blamed([work])
        if not await self._persistently(
            lambda: self._store.call_run(*self._lease_of(work), *call, blamed=blamed)
        ):
            raise LeaseLost(f"job {work.id} is no longer this node's")
        work.crashes = 0

    # -- waiting

    async def _wait(self, work: Work, new: NewWait) -> wire.Waited:
        assert work.run is not None
        key = new.key if new.key is not None else str(work.run)
        wait = (*self._lease_of(work), new.number, new.name, new.signal, key, new.timeout)
        blamed = _blamed([work])
        row = await self._persistently(lambda: self._store.wait_for_signal(*wait, blamed=blamed))
        if row is None:
            raise LeaseLost(f"job {work.id} is no longer this node's")
        work.crashes = 0
        result = wire.NULL
        if row["result"] is not None:
            opened = self._database.encryption.open(row["result"], row["job_id"], "result")
            result = msgspec.Raw(opened)
        return wire.Waited(_STATES[row["state"]], result)

    async def _suspend(self, work: Work, asked: Suspension) -> str:
        problem = None if asked.problem is None else msgspec.json.encode(asked.problem).decode()
        answer = await self._persistently(
            lambda: self._store.suspend_function(
                *self._lease_of(work), asked.waits, asked.joined, asked.knows_cancel, problem
            )
        )
        if problem is not None and answer == "suspended":
            log.error("run %s of %r was paused: %s", work.run, work.task, asked.problem.message)  # type: ignore[union-attr]
        return answer

    async def _restart(self, work: Work, body: bytes) -> bool:
        given = self._sealed(work, "input", body)
        return await self._persistently(
            lambda: self._store.restart_function(*self._lease_of(work), given)
        )

    async def _close(self, work: Work, end: wire.RaceEnd) -> None:
        """Let go of what lost a race. What was called is asked to stop."""
        result = self._sealed(work, "result", bytes(end.winner.result))
        winner = (end.winner.number, end.winner.name, result)
        blamed = _blamed([work])
        rows = await self._persistently(
            lambda: self._store.close_waits(
                *self._lease_of(work), end.losers, winner, blamed=blamed
            )
        )
        if rows is None:
            raise LeaseLost(f"job {work.id} is no longer this node's")
        work.crashes = 0
        namespace = self._database.encryption.namespace
        for name, key in {(row["signal"], row["key"]) for row in rows if row["signal"]}:
            offer = partial(self._store.offer_signals, namespace, name, key)
            await self._persistently(offer)
        if end.cancel:
            stop = partial(RunAdvance(self._database).stop_called, namespace, _called(rows))
            await self._persistently(stop)


def _blamed(works: Sequence[Work]) -> list[tuple[UUID, int]]:
    """Return the jobs and tokens of functions that went down with their process before."""
    return [(work.id, work.token) for work in works if work.crashes]


class _Together:
    """Writes what many functions ask for at the same time in one statement."""

    def __init__(self, write: Callable[[Sequence[_Entry]], Awaitable[None]]) -> None:
        self._write = write
        self._entries: list[_Entry] = []
        self._writing: asyncio.Task[None] | None = None

    def add(self, work: Work, new: Any) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        entry = _Entry(work, new, loop.create_future())
        self._entries.append(entry)
        if self._writing is None or self._writing.done():
            self._writing = loop.create_task(self._write_all())
        return entry.answer

    async def _write_all(self) -> None:
        while self._entries:
            entries, self._entries = self._entries[:_MOST], self._entries[_MOST:]
            # Nothing is written of a function that was stopped meanwhile, and no statement of nobody.
            if wanted := [entry for entry in entries if not entry.answer.done()]:
                await self._write_part(wanted)
            # Functions that were answered go on first: what they ask for next goes with what has
            # gathered meanwhile. Else two crowds would take turns, and each wait for the other's commit.
            for _ in range(_TURNS):
                await asyncio.sleep(0)

    async def _write_part(self, entries: list[_Entry]) -> None:
        """Write them together. A value that the database refuses is that of one of them."""
        try:
            await self._write(entries)
        except Exception as error:  # noqa: BLE001 - nobody must wait for ever
            bad = isinstance(error, asyncpg.PostgresError) and is_bad_value(error)
            if bad and len(entries) > 1:
                for entry in entries:
                    await self._write_part([entry])
                return
            for entry in entries:
                entry.refuse(error)


def _called(rows: Sequence[Any]) -> list[dict[str, Any]]:
    calls = (CheckpointKind.CALL, CheckpointKind.RUN)
    return [{**row, "job_id": UUID(row["job_id"])} for row in rows if row["kind"] in calls]


def _failure_of(text: str | None) -> Failure | None:
    if text is None:
        return None
    found = msgspec.json.decode(text)
    return Failure(str(found.get("type", "Unknown")), str(found.get("message", "")))
