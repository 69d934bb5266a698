"""Takes in the reports of workers over HTTP: registration, heartbeats, outcomes, progress, log lines.

Protocol. A worker is a row of `rota.node`; its lease runs by the database's clock and begins anew with
each heartbeat and each claim. Each report on a job is guarded by (job, token, worker). Nothing
is kept here between two calls, so that any server can answer any of them, and each call can be
repeated: an outcome that was written before is accepted again, and changes nothing.

A heartbeat may name all jobs that the worker knows of. What it holds beyond those for longer than a
lease was handed out in an answer that never arrived (and wasn't asked for again): that is given back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal
from uuid import UUID

import msgspec

from rota.config import Settings
from rota.context import encode_progress
from rota.core.lifecycle import TryAgain
from rota.core.signature import Signature, release_of
from rota.errors import NotFound
from rota.lib.capture.lines import shortened, storable
from rota.lib.capture.recorder import MARK
from rota.lib.encryption import Encryptor
from rota.model import Outcome, OutcomeKind, Retry
from rota.runtime.attempts import Verdicts, failed_once, retry_of, to_held
from rota.server.problems import Problem
from rota.server.remote_workers.encryption import encryptor_of
from rota.store.database import Database, is_bad_value
from rota.store.events import EventStore, Noticed
from rota.store.logs import LogStore, SaidLine, log_field
from rota.store.remote import JobToken, LogSoFar, NewWorker, RemoteStore, RemoteTask, WorkerState
from rota.store.work import WorkStore
from rota.task import Task

_ANYTHING = Signature(open=True)

_MOST_NOTICED = 100  # failures in one report that become events: more would be a flood

Answer = Literal["accepted", "stale"]


class Finished(msgspec.Struct, frozen=True):
    """How an attempt ended, as its worker saw it. `begun`: whether it had started at all."""

    job: JobToken
    outcome: Outcome
    begun: bool = True


class Said(msgspec.Struct, frozen=True):
    """Lines of an attempt: its number in the attempt, the stream, the text."""

    job: JobToken
    lines: Sequence[tuple[int, str, str]]


class RemoteWorkers:
    """The workers of one namespace."""

    def __init__(
        self, store: RemoteStore, tasks: Mapping[str, Task[..., Any]], settings: Settings,
        database: Database,
    ) -> None:  # fmt: skip
        """`database`: as the server itself sees it. Tenants only read tasks' signatures."""
        self.store = store
        self._own = WorkStore(database)
        self._tasks = tasks
        self._settings = settings
        self._logs = LogStore(store.database)
        self._events = EventStore(store.database)

    # -- registration

    async def register(self, worker: NewWorker, tasks: Sequence[RemoteTask]) -> None:
        await self.store.register_tasks(tasks)
        await self.store.register(worker, self._settings.lease_seconds)
        found = await self.store.find(worker.id)
        if found is None:
            raise Problem(409, "worker-id-taken", f"{worker.id} is another's: choose a new id")
        _check_alive(worker.id, found)
        await self._register_signatures(worker, tasks)

    async def _register_signatures(self, worker: NewWorker, tasks: Sequence[RemoteTask]) -> None:
        """Register signatures, as a node does at its start. Without any, submits are not checked."""
        told = {task.name: task.signature for task in tasks if task.signature is not None}
        if not told:
            return
        signatures = {
            name: msgspec.json.encode(told.get(name, _ANYTHING)).decode() for name in worker.tasks
        }
        release = release_of(signatures)
        await self._own.register_signatures(self.store.namespace, release, signatures)
        await self.store.note_release(worker.id, release)

    async def find(self, id: UUID) -> WorkerState:
        """Return a worker, dead or alive. Raises NotFound if there never was one."""
        found = await self.store.find(id)
        if found is None:
            raise NotFound(f"there is no worker {id} in namespace {self.store.namespace!r}")
        return found

    async def renew(self, id: UUID, *, draining: bool = False) -> None:
        """Renew its lease. Raises if it isn't alive."""
        lease = self._settings.lease_seconds
        if not await self.store.renew(id, lease, draining=draining):
            _check_alive(id, await self.find(id))

    async def leave(self, id: UUID) -> int:
        """End a worker and give back what it holds. Return how many jobs."""
        async with self.store.database.transaction("leave") as connection:
            await self.store.end(connection, id)
            held = await self.store.held(connection, id)
            verdicts = self._verdicts(id)
            for row in held:
                verdicts.judge(to_held(row), Outcome(OutcomeKind.RETURNED), Retry(), row["ran"])
            await self._close(connection, id, verdicts, held)
        return len(held)

    # -- heartbeats

    async def give_back_unknown(self, id: UUID, known: Sequence[JobToken]) -> None:
        async with self.store.database.transaction("give_back_unknown") as connection:
            held = await self.store.held(
                connection, id, longer_than=self._settings.lease_seconds, known=known
            )
            if held:
                verdicts = self._verdicts(id)
                for row in held:
                    verdicts.give_up(to_held(row), row["ran"])
                await self._close(connection, id, verdicts, held)

    async def _close(
        self, connection: Any, id: UUID, verdicts: Verdicts, held: Sequence[Any]
    ) -> None:
        await verdicts.write(self.store.work, connection, apart=True)
        await self.store.close_finished(id, {row["token"] for row in held}, connection)

    # -- outcomes

    async def finish(self, id: UUID, finished: Sequence[Finished]) -> list[Answer]:
        """Judge and write outcomes. Return one answer for each, in order."""
        try:
            return await self._finish(id, finished, apart=False)
        except Exception as error:
            if not is_bad_value(error):
                raise
        return await self._finish(id, finished, apart=True)

    async def _finish(self, id: UUID, finished: Sequence[Finished], *, apart: bool) -> list[Answer]:
        store = self.store
        jobs = list(dict.fromkeys(one.job for one in finished))
        async with store.database.transaction("finish_remote") as connection:
            rows = await store.held_for_finish(connection, id, jobs)
            held = {(row["id"], row["token"]): row for row in rows}
            others = [job for job in jobs if job not in held]
            known = await store.were_finished(connection, id, others) if others else set()
            verdicts, noticed = self._verdicts(id), list[Noticed]()
            retries = await self._retries(connection, finished, held)
            for one in finished:
                if one.job in held:
                    row = held.pop(one.job)  # reported twice: the first counts
                    known.add(one.job)
                    noticed += self._judge(verdicts, row, one, retries)
            await verdicts.write(store.work, connection, apart=apart)
            await store.close_finished(id, {token for _, token in jobs}, connection)
        if noticed:
            await self._events.add(store.namespace, noticed[:_MOST_NOTICED])
        return ["accepted" if one.job in known else "stale" for one in finished]

    def _judge(
        self, verdicts: Verdicts, row: Any, one: Finished, retries: Mapping[str, Retry]
    ) -> list[Noticed]:
        """Judge one outcome. Return the event of a failure that is tried again."""
        work, outcome = to_held(row), one.outcome
        if outcome.kind is OutcomeKind.CANCELLED and not row["cancelled"]:
            # Nobody asked for that, and a job must not be lost by a wrong report.
            outcome = Outcome(OutcomeKind.RETURNED)
        if outcome.kind is OutcomeKind.RETURNED and not one.begun:
            verdicts.give_back(work)
            return []
        if row["encrypted"]:
            work.encryptor = encryptor_of(self.store, row["id"])
        retry = retries.get(work.task) or retry_of(self._tasks, work.task)
        verdict = verdicts.judge(work, outcome, retry, row["ran"])
        if isinstance(verdict, TryAgain) and outcome.failure is not None:
            return [failed_once(work, outcome.failure)]
        return []

    async def _retries(
        self, connection: Any, finished: Sequence[Finished], held: Mapping[JobToken, Any]
    ) -> dict[str, Retry]:
        """Return the stored policies of the tasks of which a job failed."""
        failed = {
            held[one.job]["task"] for one in finished
            if one.job in held and one.outcome.kind is OutcomeKind.RAISED
        }  # fmt: skip
        return await self.store.retries_of(connection, failed) if failed else {}

    def _verdicts(self, id: UUID) -> Verdicts:
        return Verdicts(id, self._settings.max_crashes)

    # -- progress and log lines

    async def report_progress(
        self, id: UUID, reports: Sequence[tuple[JobToken, float, float | None, str]]
    ) -> list[Answer]:
        encrypted = await self.store.encrypted_of(id, [job for job, *_ in reports])
        latest: dict[JobToken, str] = {}
        for job, done, total, message in reports:
            said = encode_progress(done, total, message)
            encryptor = encryptor_of(self.store, job[0]) if job[0] in encrypted else None
            latest[job] = encryptor.json("progress", said) if encryptor else said.decode()
        accepted = await self.store.report_progress(id, list(latest), list(latest.values()))
        return ["accepted" if job in accepted else "stale" for job, *_ in reports]

    async def log(self, id: UUID, said: Sequence[Said]) -> list[Answer]:
        answers: list[Answer] = []
        for one in said:
            so_far = await self.store.log_so_far(id, one.job)
            if so_far is None:
                answers.append("stale")
                continue
            lines = _new_lines(one, so_far, self._settings.log_bytes)
            if so_far.encrypted:
                lines = _encrypted(lines, encryptor_of(self.store, one.job[0]))
            refused = await self._logs.add(id, self.store.namespace, lines) if lines else 0
            answers.append("stale" if refused else "accepted")
        return answers


def _new_lines(said: Said, so_far: LogSoFar, limit: int) -> list[SaidLine]:
    """Return the lines that weren't written before, as far as they fit; a mark if the rest is cut."""
    (id, token), lines = said.job, []
    room = limit - so_far.size
    if so_far.cut or limit <= 0:
        return []
    for seq, stream, text in sorted(said.lines):
        if seq <= so_far.seq:
            continue
        line = shortened(storable(" ".join(text.splitlines())))
        room -= len(line.encode()) + 32
        if room < 0:
            mark = f"… the rest is left out: {limit:,} bytes are kept of an attempt"
            lines.append(SaidLine(id, token, so_far.attempt, seq, None, MARK, mark))
            break
        lines.append(SaidLine(id, token, so_far.attempt, seq, None, stream, line))
    return lines


def _encrypted(lines: Sequence[SaidLine], encryptor: Encryptor) -> list[SaidLine]:
    return [
        msgspec.structs.replace(
            line, text=encryptor.text(log_field(line.token, line.seq), line.text)
        )
        for line in lines
    ]


def _check_alive(id: UUID, found: WorkerState) -> None:
    if found.state in ("live", "draining"):
        return
    if found.state == "dead":
        detail = (
            f"worker {id} was declared dead: no heartbeat arrived in time. Its jobs were given to "
        )
        detail += "others. Stop what still runs, and register again"
    else:
        detail = f"worker {id} has left: register again"
    raise Problem(410, "worker-gone", detail)
