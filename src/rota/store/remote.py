"""What workers over HTTP do to the store, on behalf of one namespace. One short method per query."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from rota.core.signature import Signature
from rota.errors import ConfigError
from rota.model import Guarantee, Retry
from rota.store.database import Connection, Database
from rota.store.work import Returned, WorkStore, columns_in_order

log = logging.getLogger("rota.remote")

JobToken = tuple[UUID, int]


class RemoteTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task of which a worker brought the options along."""

    name: str
    queue: str
    needs: tuple[str, ...]
    priority: int
    guarantee: Guarantee
    timeout: float | None
    retry: Retry
    signature: Signature | None = None  # None: nothing is known of its arguments


class NewWorker(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says of itself."""

    id: UUID
    name: str
    host: str
    version: str
    queues: tuple[str, ...]
    capabilities: tuple[str, ...]
    tasks: tuple[str, ...]
    slots: int
    heartbeat_timeouts: Mapping[str, float] = {}  # of the tasks whose signs of life it passes on


class WorkerState(msgspec.Struct, frozen=True):
    state: str  # live, draining, stopped, dead
    name: str
    queues: tuple[str, ...]
    capabilities: tuple[str, ...]
    ended_at: datetime | None
    trusted: float  # seconds until its lease runs out


class LogSoFar(msgspec.Struct, frozen=True):
    """What was kept of an attempt's lines."""

    attempt: int
    seq: int
    size: int
    cut: bool
    encrypted: bool


class RemoteStore:
    """`database`: as the namespace sees it, with pinned plans."""

    def __init__(self, database: Database, namespace: str) -> None:
        self.database = database
        self.namespace = namespace
        self.work = WorkStore(database)

    # -- who they are

    async def register(self, worker: NewWorker, lease: float) -> None:
        await self.database.fetch(
            "register_worker", worker.id, self.namespace, worker.name, worker.host,
            worker.version, lease, worker.queues, worker.capabilities, worker.tasks, worker.slots,
        )  # fmt: skip
        if worker.heartbeat_timeouts:
            timeouts = msgspec.json.encode(worker.heartbeat_timeouts).decode()
            await self.database.fetch("note_heartbeat_timeouts", worker.id, timeouts)

    async def register_tasks(self, tasks: Sequence[RemoteTask]) -> None:
        if not tasks:
            return
        rows = [
            (task.name, task.queue, "+".join(task.needs), task.priority, int(task.guarantee),
             task.retry.max_attempts, task.timeout, encode_retry(task.retry))
            for task in tasks
        ]  # fmt: skip
        columns = list(zip(*rows, strict=True))
        await self.database.fetch("register_remote_tasks", self.namespace, *columns)

    async def note_release(self, id: UUID, release: str) -> None:
        await self.database.fetch("note_release", id, release)

    async def find(self, id: UUID) -> WorkerState | None:
        rows = await self.database.fetch("find_worker", id, self.namespace)
        if not rows:
            return None
        row = rows[0]
        return WorkerState(
            row["state"], row["name"], tuple(row["queues"]), tuple(row["capabilities"]),
            row["ended_at"], row["trusted"],
        )  # fmt: skip

    async def renew(self, id: UUID, lease: float, *, draining: bool = False) -> bool:
        """Whether it is still believed in."""
        return bool(await self.database.fetch("renew_worker", id, self.namespace, lease, draining))

    async def end(self, connection: Connection, id: UUID) -> bool:
        query = self.database.queries["end_worker"]
        return bool(await connection.fetch(query, id, self.namespace))

    # -- claiming

    async def next_try(self) -> int:
        number: int = await self.database.fetchval("next_try")
        return number

    async def claim(self, id: UUID, request: str, this_try: int, most: int) -> list[Any]:
        return await self.database.fetch("claim_remote", id, request, this_try, most)

    async def count_suspects(self, id: UUID, token: int, crashes: int) -> int:
        count: int = await self.database.fetchval("count_suspects", id, token, crashes)
        return count

    async def give_back(self, id: UUID, jobs: Sequence[Returned]) -> None:
        """As if they had never been claimed."""
        if jobs:
            await self.work.give_back(id, jobs)
            await self.close_finished(id, {job.token for job in jobs})

    # -- what it holds

    async def cancels(self, id: UUID) -> list[JobToken]:
        return [tuple(row) for row in await self.database.fetch("cancels_of", id)]

    async def moved_on(self, id: UUID, jobs: Iterable[JobToken]) -> list[JobToken]:
        ids, tokens = _columns(jobs)
        return [tuple(row) for row in await self.database.fetch("moved_on", id, ids, tokens)]

    async def held(
        self, connection: Connection, id: UUID, *, longer_than: float | None = None,
        known: Iterable[JobToken] = (),
    ) -> list[Any]:  # fmt: skip
        """All of it; or what it holds since so many seconds and doesn't know of. Locked."""
        query = self.database.queries["held_of_worker"]
        rows: list[Any] = await connection.fetch(query, id, longer_than, *_columns(known))
        return rows

    async def held_for_finish(
        self, connection: Connection, id: UUID, jobs: Iterable[JobToken]
    ) -> list[Any]:
        query = self.database.queries["held_for_finish"]
        rows: list[Any] = await connection.fetch(query, id, *_columns(jobs))
        return rows

    async def were_finished(
        self, connection: Connection, id: UUID, jobs: Iterable[JobToken]
    ) -> set[JobToken]:
        """Which of these outcomes were written before."""
        query = self.database.queries["were_finished"]
        return {tuple(row) for row in await connection.fetch(query, id, *_columns(jobs))}

    async def close_finished(
        self, id: UUID, tokens: Iterable[int], connection: Connection = None
    ) -> None:
        if connection is None:
            await self.database.fetch("close_finished", id, sorted(set(tokens)))
        else:
            query = self.database.queries["close_finished"]
            await connection.fetch(query, id, sorted(set(tokens)))

    async def retries_of(self, connection: Connection, tasks: Iterable[str]) -> dict[str, Retry]:
        """The policies of those tasks that brought one along."""
        query = self.database.queries["retries_of"]
        rows = await connection.fetch(query, self.namespace, sorted(set(tasks)))
        return {row["name"]: decode_retry(row["retry"]) for row in rows}

    # -- what it says

    async def encrypted_of(self, id: UUID, jobs: Iterable[JobToken]) -> set[UUID]:
        """Which of these jobs are encrypted."""
        ids = [job for job, _ in jobs]
        return {row[0] for row in await self.database.fetch("encrypted_of", id, ids)}

    async def note_alive(self, id: UUID, jobs: Iterable[JobToken]) -> None:
        await self.database.fetch("note_alive", id, *columns_in_order(*_columns(jobs)))

    async def report_progress(
        self, id: UUID, jobs: Sequence[JobToken], progress: Sequence[str]
    ) -> set[JobToken]:
        columns = columns_in_order(*_columns(jobs), progress)
        rows = await self.database.fetch("report_progress", id, *columns)
        return {tuple(row) for row in rows}

    async def log_so_far(self, id: UUID, job: JobToken) -> LogSoFar | None:
        """None: the attempt isn't the worker's."""
        rows = await self.database.fetch("log_so_far", id, *job)
        return LogSoFar(*rows[0]) if rows else None


def encode_retry(retry: Retry) -> str:
    return msgspec.json.encode(msgspec.structs.asdict(retry)).decode()


def decode_retry(text: str) -> Retry:
    """The default when it can't be read: one task's policy must not stop the judging of others' jobs."""
    try:
        fields: dict[str, Any] = msgspec.json.decode(text)
        for names in ("only_on", "never_on"):
            fields[names] = tuple(fields[names])
        return Retry(**fields)
    except (msgspec.MsgspecError, ConfigError, LookupError, TypeError, ValueError) as error:
        log.warning("a stored retry policy can't be read, the default counts: %s: %s", text, error)
        return Retry()


def _columns(jobs: Iterable[JobToken]) -> tuple[list[UUID], list[int]]:
    listed = list(jobs)
    return [id for id, _ in listed], [token for _, token in listed]
