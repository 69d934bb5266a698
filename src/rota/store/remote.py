"""Workers over HTTP, in the store of one namespace. One short method per query."""

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
from rota.store.database import Connection, Database, Store
from rota.store.work import Returned, WorkStore, columns_in_order

log = logging.getLogger("rota.remote")

JobToken = tuple[UUID, int]


class RemoteTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task that a worker registered, with its options."""

    name: str
    queue: str
    needs: tuple[str, ...]
    priority: int
    guarantee: Guarantee
    timeout: float | None
    retry: Retry
    signature: Signature | None = None  # None: nothing is known of its arguments


class NewWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that registers itself."""

    id: UUID
    name: str
    host: str
    version: str
    queues: tuple[str, ...]
    capabilities: tuple[str, ...]
    tasks: tuple[str, ...]
    slots: int
    resources: Mapping[str, float] | None = None  # as the database compares them; None: not told
    labels: tuple[str, ...] = ()
    heartbeat_timeouts: Mapping[str, float] = {}  # of the tasks whose signs of life it passes on


class WorkerState(msgspec.Struct, frozen=True):
    state: str  # live, draining, stopped, dead
    name: str
    queues: tuple[str, ...]
    capabilities: tuple[str, ...]
    labels: tuple[str, ...]
    ended_at: datetime | None
    trusted: float  # seconds until its lease runs out
    resources: dict[str, float] = {}


class LogSoFar(msgspec.Struct, frozen=True):
    """The size of an attempt's log so far."""

    attempt: int
    seq: int
    size: int
    cut: bool
    encrypted: bool


class RemoteStore(Store):
    """`database` is the namespace's, with pinned plans."""

    def __init__(self, database: Database, namespace: str) -> None:
        super().__init__(database)
        self.namespace = namespace
        self.work = WorkStore(database)

    # -- workers

    async def register(self, worker: NewWorker, lease: float) -> None:
        await self.database.fetch(
            "register_worker", worker.id, self.namespace, worker.name, worker.host,
            worker.version, lease, worker.queues, worker.capabilities, worker.tasks, worker.slots,
        )  # fmt: skip
        if worker.resources is not None or worker.labels:
            resources = msgspec.json.encode(worker.resources or {}).decode()
            await self.database.fetch("note_resources", worker.id, resources, worker.labels)
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
        return await self._first(WorkerState, "find_worker", id, self.namespace)

    async def renew(self, id: UUID, lease: float, *, draining: bool = False) -> WorkerState | None:
        """Renew a worker's lease; None if it has ended."""
        return await self._first(WorkerState, "renew_worker", id, self.namespace, lease, draining)

    async def end(self, connection: Connection, id: UUID) -> bool:
        return bool(await self.database.fetch("end_worker", id, self.namespace, on=connection))

    # -- claiming

    async def next_try(self) -> int:
        return await self._one(int, "next_try")

    async def claim(
        self, id: UUID, request: str, this_try: int, most: int, *, advertises: bool = False,
        withdraws: bool = False,
    ) -> list[Any]:  # fmt: skip
        """Claim jobs. `advertises`: that the worker is idle, if there are none; `withdraws`: that it
        was, if there are some."""
        return await self.database.fetch(
            "claim_remote", id, request, this_try, most, advertises, withdraws
        )

    async def count_suspects(self, id: UUID, token: int, crashes: int) -> int:
        return await self._one(int, "count_suspects", id, token, crashes)

    async def give_back(self, id: UUID, jobs: Sequence[Returned]) -> None:
        """Return jobs to their queues as if they had never been claimed."""
        if jobs:
            await self.work.give_back(id, jobs)
            await self.close_finished(id, {job.token for job in jobs})

    # -- held jobs

    async def cancels(self, id: UUID) -> list[JobToken]:
        return [tuple(row) for row in await self.database.fetch("cancels_of", id)]

    async def moved_on(self, id: UUID, jobs: Iterable[JobToken]) -> list[JobToken]:
        ids, tokens = _columns(jobs)
        return [tuple(row) for row in await self.database.fetch("moved_on", id, ids, tokens)]

    async def held(
        self, connection: Connection, id: UUID, *, longer_than: float | None = None,
        known: Iterable[JobToken] = (), seen: int | None = None,
    ) -> list[Any]:  # fmt: skip
        """Lock and return a worker's jobs: all, or those held for longer that aren't among `known`,
        and whose tokens aren't above `seen`."""
        return await self.database.fetch(
            "held_of_worker", id, longer_than, *_columns(known), seen, on=connection
        )

    async def offered(self, id: UUID, jobs: Iterable[JobToken]) -> list[Any]:
        """Return those of the jobs that the worker may begin."""
        return await self.database.fetch("offered_to_worker", id, self.namespace, *_columns(jobs))

    async def held_for_finish(
        self, connection: Connection, id: UUID, jobs: Iterable[JobToken]
    ) -> list[Any]:
        return await self.database.fetch(
            "held_for_finish", id, *_columns(jobs), self.namespace, on=connection
        )

    async def were_finished(
        self, connection: Connection, id: UUID, jobs: Iterable[JobToken]
    ) -> set[JobToken]:
        """Return those of the jobs whose outcomes were written before."""
        rows = await self.database.fetch("were_finished", id, *_columns(jobs), on=connection)
        return {tuple(row) for row in rows}

    async def close_finished(
        self, id: UUID, tokens: Iterable[int], connection: Connection = None
    ) -> None:
        await self.database.fetch("close_finished", id, sorted(set(tokens)), on=connection)

    async def retries_of(self, connection: Connection, tasks: Iterable[str]) -> dict[str, Retry]:
        """Return the retry policies of the tasks that were registered with one."""
        names = sorted(set(tasks))
        rows = await self.database.fetch("retries_of", self.namespace, names, on=connection)
        return {row["name"]: decode_retry(row["retry"]) for row in rows}

    # -- reports

    async def encrypted_of(self, id: UUID, jobs: Iterable[JobToken]) -> set[UUID]:
        """Return those of the jobs that are encrypted."""
        ids, _ = _columns(jobs)
        return set(await self._all(UUID, "encrypted_of", id, ids))

    async def note_alive(self, id: UUID, jobs: Iterable[JobToken]) -> None:
        await self.database.fetch("note_alive", id, *columns_in_order(*_columns(jobs)))

    async def report_progress(
        self, id: UUID, jobs: Sequence[JobToken], progress: Sequence[str]
    ) -> set[JobToken]:
        columns = columns_in_order(*_columns(jobs), progress)
        rows = await self.database.fetch("report_progress", id, *columns)
        return {tuple(row) for row in rows}

    async def log_so_far(self, id: UUID, job: JobToken) -> LogSoFar | None:
        """Return how much of an attempt's log is stored; None: the attempt isn't the worker's."""
        return await self._first(LogSoFar, "log_so_far", id, *job)


def encode_retry(retry: Retry) -> str:
    return msgspec.json.encode(msgspec.structs.asdict(retry)).decode()


def decode_retry(text: str) -> Retry:
    """Decode a policy; the default if it can't be read: one task must not stop others' jobs."""
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
