"""Reports of remote workers, which use the HTTP API: registration, heartbeats, outcomes, progress, logs.

Protocol. A worker is a row of `rota.node`; its lease runs by the database's clock and is renewed by each
heartbeat and each claim. Each report on a job is guarded by (job, token, worker). Nothing is kept here
between two calls, so that any server can answer any of them, and each call can be repeated: an outcome
that was written before is accepted again, and changes nothing.

A heartbeat may name all jobs that the worker holds. A job that it holds beyond those for longer than a
lease was handed out in an answer that never arrived (and was not asked for again): it is given back.

Encrypted jobs are decrypted and encrypted by the server, so that workers need no keys: they get plain
values, over TLS. A server without the key hands out no such jobs and accepts no reports about them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from rota.config import Settings
from rota.context import encode_progress
from rota.core.lifecycle import TryAgain
from rota.core.signature import Signature, release_of
from rota.errors import KeyMissing, NotFound
from rota.lib.capture import MARK, shortened, storable
from rota.lib.encryption import Encryptor
from rota.model import Outcome, OutcomeKind, Retry
from rota.runtime.attempts import (
    Verdicts,
    decrypt,
    failed_once,
    mark,
    must_mark,
    retry_of,
    to_held,
)
from rota.runtime.step_arguments import StepArguments
from rota.runtime.work import Work
from rota.server.problems import Problem
from rota.server.remote_workers.messages import (
    Answer,
    Answered,
    Answers,
    FinishItem,
    FinishRequest,
    HeartbeatAnswer,
    HeartbeatRequest,
    LogItem,
    LogRequest,
    ProgressItem,
    ProgressRequest,
    Registered,
    to_outcome,
)
from rota.server.remote_workers.messages import to_held as held_jobs
from rota.store.database import Database
from rota.store.driver_errors import is_bad_value
from rota.store.events import EventStore, Noticed
from rota.store.logs import LogStore, NewLogLine, log_field
from rota.store.remote import JobToken, LogSoFar, NewWorker, RemoteStore, RemoteTask, WorkerState
from rota.store.work import WorkStore
from rota.task import Task

log = logging.getLogger("rota.server")

_ANYTHING = Signature(open=True)

_MOST_NOTICED = 100  # failures of one report that become events


class RemoteWorkers:
    """The workers of one namespace."""

    def __init__(
        self, store: RemoteStore, tasks: Mapping[str, Task[..., Any]], settings: Settings,
        database: Database,
    ) -> None:  # fmt: skip
        """`database` is not restricted to a namespace: namespaces can't write tasks' signatures."""
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
            raise Problem(
                409,
                "worker-id-taken",
                f"the id {worker.id} belongs to another worker: choose a new one",
            )
        _check_alive(worker.id, found)
        await self._register_signatures(worker, tasks)

    async def _register_signatures(self, worker: NewWorker, tasks: Sequence[RemoteTask]) -> None:
        """Register signatures, as a node does at its start. Without any, submits are not checked."""
        given = {task.name: task.signature for task in tasks if task.signature is not None}
        if not given:
            return
        signatures = {
            name: msgspec.json.encode(given.get(name, _ANYTHING)).decode() for name in worker.tasks
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

    async def renew(self, id: UUID, *, draining: bool = False) -> WorkerState:
        """Renew its lease, and return it. Raises if it isn't alive."""
        renewed = await self.store.renew(id, self._settings.lease_seconds, draining=draining)
        if renewed is None:
            renewed = await self.find(id)
            _check_alive(id, renewed)
        return renewed

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

    def registered(self, id: UUID) -> Registered:
        return Registered(id, self._settings.heartbeat, self._settings.lease_seconds)

    # -- heartbeats

    async def heartbeat(
        self, id: UUID, data: HeartbeatRequest, seen: int | None = None
    ) -> HeartbeatAnswer:
        await self.renew(id, draining=data.draining)
        lost: Sequence[JobToken] = ()
        if data.alive:
            await self.store.note_alive(id, [held.key for held in data.alive])
        if data.jobs is not None:
            known = [held.key for held in data.jobs]
            await self.give_back_unknown(id, known, seen)
            lost = await self.store.moved_on(id, known)
        cancels = await self.store.cancels(id)
        return HeartbeatAnswer(
            held_jobs(cancels),
            held_jobs(lost),
            self._settings.heartbeat,
            self._settings.lease_seconds,
        )

    async def give_back_unknown(
        self, id: UUID, known: Sequence[JobToken], seen: int | None = None
    ) -> None:
        """Give back what the worker doesn't know of. `seen`: the highest token that it has seen; a job
        with a higher one was claimed after it said so."""
        async with self.store.database.transaction("give_back_unknown") as connection:
            held = await self.store.held(
                connection, id, longer_than=self._settings.lease_seconds, known=known, seen=seen
            )
            if held:
                verdicts = self._verdicts(id)
                for row in held:
                    verdicts.give_up(to_held(row), row["ran"], started=row["started"])
                await self._close(connection, id, verdicts, held)

    # -- offers, of a relay

    async def begin(self, id: UUID, jobs: Sequence[JobToken]) -> list[JobToken]:
        """Return those of the offered jobs that may start, marked where they must be.

        May be repeated: what was marked under its token before is not marked again.
        """
        rows = await self.store.offered(id, jobs)
        works = [_offered(row) for row in rows]
        marked = [
            work for work, row in zip(works, rows, strict=True)
            if must_mark(work) and not row["started"]
        ]  # fmt: skip
        answers = await mark(self.store.work, id, marked) if marked else {}
        refused = {work.id for work in marked if answers.get(work.id) != "start"}
        return [(work.id, work.token) for work in works if work.id not in refused]

    async def _close(
        self, connection: Any, id: UUID, verdicts: Verdicts, held: Sequence[Any]
    ) -> None:
        await verdicts.write(self.store.work, connection, apart=True)
        await self.store.close_finished(id, {row["token"] for row in held}, connection)

    # -- reports on jobs

    async def report(self, id: UUID, data: FinishRequest | ProgressRequest | LogRequest) -> Answers:
        """Write what a worker reports. Return one answer for each item, in order."""
        if not isinstance(data, FinishRequest) or not data.items:
            await self.find(id)
        match data:
            case FinishRequest():
                answers = await self.finish(id, data.items) if data.items else []
            case ProgressRequest():
                answers = await self.report_progress(id, data.items)
            case LogRequest():
                answers = await self.add_log_lines(id, data.items)
        pairs = zip(data.items, answers, strict=True)
        return Answers([Answered(*item.key, answer) for item, answer in pairs])

    # -- outcomes

    async def finish(self, id: UUID, items: Sequence[FinishItem]) -> list[Answer]:
        """Judge and write outcomes. Return one answer for each, in order."""
        limit = self._settings.max_result_bytes
        finished = [(item, to_outcome(item, limit)) for item in items]
        try:
            return await self._finish(id, finished, apart=False)
        except Exception as error:
            if not is_bad_value(error):
                raise
        return await self._finish(id, finished, apart=True)

    async def _finish(
        self, id: UUID, finished: Sequence[tuple[FinishItem, Outcome]], *, apart: bool
    ) -> list[Answer]:
        store = self.store
        jobs = list(dict.fromkeys(item.key for item, _ in finished))
        async with store.database.transaction("finish_remote") as connection:
            rows = await store.held_for_finish(connection, id, jobs)
            held = {(row["id"], row["token"]): row for row in rows}
            others = [job for job in jobs if job not in held]
            if others:  # held jobs say by themselves that there is such a worker in this namespace
                await self.find(id)
            known = await store.were_finished(connection, id, others) if others else set()
            verdicts, noticed = self._verdicts(id), list[Noticed]()
            retries = await self._retries(connection, finished, held)
            for item, outcome in finished:
                if item.key in held:
                    row = held.pop(item.key)  # reported twice: the first counts
                    known.add(item.key)
                    noticed += self._judge(verdicts, row, item, outcome, retries)
            await verdicts.write(store.work, connection, apart=apart)
            await store.close_finished(id, {token for _, token in jobs}, connection)
        if noticed:
            await self._events.add(store.namespace, noticed[:_MOST_NOTICED])
        return ["accepted" if item.key in known else "stale" for item, _ in finished]

    def _judge(
        self, verdicts: Verdicts, row: Any, item: FinishItem, outcome: Outcome,
        retries: Mapping[str, Retry],
    ) -> list[Noticed]:  # fmt: skip
        """Judge one outcome. Return the event of a failure that is tried again."""
        work = to_held(row)
        if outcome.kind is OutcomeKind.CANCELLED and not row["cancelled"]:
            # No cancellation was requested, and a job must not be lost by a wrong report.
            outcome = Outcome(OutcomeKind.RETURNED)
        if outcome.kind is OutcomeKind.RETURNED and not item.begun:
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
        self, connection: Any, finished: Sequence[tuple[FinishItem, Outcome]],
        held: Mapping[JobToken, Any],
    ) -> dict[str, Retry]:  # fmt: skip
        """Return the stored policies of the tasks of which a job failed."""
        failed = {
            held[item.key]["task"] for item, outcome in finished
            if item.key in held and outcome.kind is OutcomeKind.RAISED
        }  # fmt: skip
        return await self.store.retries_of(connection, failed) if failed else {}

    def _verdicts(self, id: UUID) -> Verdicts:
        return Verdicts(id, self._settings.max_crashes)

    # -- progress and log lines

    async def report_progress(self, id: UUID, reports: Sequence[ProgressItem]) -> list[Answer]:
        encrypted = await self.store.encrypted_of(id, [one.key for one in reports])
        latest: dict[JobToken, str] = {}
        for one in reports:
            progress = encode_progress(one.done, one.total, one.message)
            encryptor = encryptor_of(self.store, one.job) if one.job in encrypted else None
            latest[one.key] = (
                encryptor.json("progress", progress) if encryptor else progress.decode()
            )
        accepted = await self.store.report_progress(id, list(latest), list(latest.values()))
        return ["accepted" if one.key in accepted else "stale" for one in reports]

    async def add_log_lines(self, id: UUID, items: Sequence[LogItem]) -> list[Answer]:
        answers: list[Answer] = []
        for one in items:
            so_far = await self.store.log_so_far(id, one.key)
            if so_far is None:
                answers.append("stale")
                continue
            lines = _new_lines(one, so_far, self._settings.log_bytes)
            if so_far.encrypted:
                lines = _encrypted(lines, encryptor_of(self.store, one.job))
            refused = await self._logs.add(id, self.store.namespace, lines) if lines else 0
            answers.append("stale" if refused else "accepted")
        return answers


def _offered(row: Any) -> Work:
    work = to_held(row)
    work.schedule = row["schedule_id"]
    return work


def _new_lines(item: LogItem, so_far: LogSoFar, limit: int) -> list[NewLogLine]:
    """Return the lines that were not written before, as far as they fit, and a mark if some are cut."""
    lines: list[NewLogLine] = []
    room = limit - so_far.size
    if so_far.cut or limit <= 0:
        return []
    for seq, text in enumerate(item.lines, item.first):
        if seq <= so_far.seq:
            continue
        line = shortened(storable(" ".join(text.splitlines())))
        room -= len(line.encode()) + 32
        if room < 0:
            mark = f"… the rest is left out: {limit:,} bytes are kept of an attempt"
            lines.append(NewLogLine(item.job, item.token, so_far.attempt, seq, None, MARK, mark))
            break
        lines.append(NewLogLine(item.job, item.token, so_far.attempt, seq, None, item.stream, line))
    return lines


def _encrypted(lines: Sequence[NewLogLine], encryptor: Encryptor) -> list[NewLogLine]:
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
            "others. Stop those that still run, and register again"
        )
    else:
        detail = f"worker {id} has left: register again"
    raise Problem(410, "worker-gone", detail)


def encryptor_of(store: RemoteStore, job: UUID) -> Encryptor:
    ring = store.database.encryption.ring
    if ring is None:
        raise Problem(
            503, "unavailable", f"job {job} is encrypted, and this server has no key: try another",
            retry_after=5,
        )  # fmt: skip
    return ring.encryptor(store.namespace, "j", job)


async def decrypted(store: RemoteStore, worker: UUID, works: Sequence[Work]) -> list[Work]:
    """Return those that can be read here, with complete arguments. One whose payload is not authentic,
    or whose arguments can't be completed, fails."""
    readable: list[Work] = []
    verdicts = Verdicts(worker, max_crashes=1)
    incomplete = await StepArguments(store.database).complete(works, worker)
    for work in works:
        if work.stopping is not None:  # a member of a map, which somebody else was given meanwhile
            continue
        try:
            failure = incomplete.get(work.id) or decrypt(store.database.encryption, work)
        except KeyMissing as error:
            log.error("job %s can't be handed out: %s", work.id, error)
            continue
        if failure is None:
            readable.append(work)
        else:
            outcome = Outcome(OutcomeKind.RAISED, failure=failure, fatal=True)
            verdicts.judge(work, outcome, Retry(), 0.0)
    if len(verdicts):
        async with store.database.transaction("finish_remote") as connection:
            await verdicts.write(store.work, connection, apart=True)
    return readable
