"""Jobs, queues, nodes and shards in the store: one short method per query."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from time import monotonic
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

import msgspec

from rota.core.explain_room import Holder, Machine
from rota.errors import QueueFull, StoreUnavailable
from rota.lib.encryption import TEXT
from rota.lib.ids import unit
from rota.model import (
    Attempt,
    DeadCount,
    Failure,
    Guarantee,
    Job,
    NodeStatus,
    OutcomeKind,
    QueueStatus,
    ShardStatus,
    State,
    Takeover,
)
from rota.store.database import Connection, Store
from rota.store.encrypted import Encryption
from rota.store.queue_counts import QueueCount, QueueCountStore
from rota.store.rows import NewJob, Submitted, Trace, asked_of, split_lane

T = TypeVar("T")
Gate: TypeAlias = contextlib.AbstractAsyncContextManager[None]

_attempts = msgspec.json.Decoder(list[Attempt])

_LOOKS = 5
_LOOKED = 20_000  # jobs that a look reads


class JobStore(Store):
    """Submits, reads and changes jobs."""

    async def submit_jobs(self, jobs: Sequence[NewJob]) -> list[Submitted]:
        """Store jobs, each on its own: a conflict of one key leaves the others stored."""
        jobs = (await self.database.known_encryption()).jobs(jobs)
        made = _columns_of_made(jobs[0]) if len(jobs) == 1 else None
        encoded = msgspec.json.encode(jobs).decode() if made is None else ""

        async def attempt(repeated: bool) -> list[Submitted]:
            nonlocal encoded
            if made is not None and not repeated:
                await self.database.fetch("submit_made", *made)
                return [Submitted(jobs[0].id, existed=False, conflict=False)]
            encoded = encoded or msgspec.json.encode(jobs).decode()
            rows = await self.database.fetch("submit_jobs", encoded, repeated, "own")
            return [Submitted(*row) for row in rows]

        async with self._noting_refusals():
            return await self.persistently(attempt)

    @contextlib.asynccontextmanager
    async def _noting_refusals(self) -> AsyncIterator[None]:
        """Keep what a refusal found out: its own transaction is undone."""
        try:
            yield
        except QueueFull as error:
            # Spares the next ones the work. A role that only submits may not; a scheduler does it too.
            with contextlib.suppress(StoreUnavailable):
                await self.database.fetch("fold_flow", error.namespace)
            raise

    async def submit_atomically(self, jobs: Sequence[NewJob]) -> list[Submitted]:
        """Store all jobs or none: after a conflict of one key, which is an answer, nothing is stored."""
        jobs = (await self.database.known_encryption()).jobs(jobs)

        async def attempt(repeated: bool) -> list[Submitted]:
            answers: list[Submitted] = []
            with contextlib.suppress(_Undo):
                async with self.database.transaction("submit") as connection:
                    answers = await self._submit_on(connection, jobs, repeated)
                    if any(answer.conflict for answer in answers):
                        raise _Undo
            return answers

        async with self._noting_refusals():
            return await self.persistently(attempt)

    async def submit_unique(
        self, jobs: Sequence[NewJob], *, atomically: bool = False, gate: Gate | None = None
    ) -> list[Submitted]:
        """Store unique jobs, in one transaction. `atomically`: if one is refused, none is stored.
        `gate` is passed for each attempt, and not between two."""
        gate = gate or contextlib.nullcontext()
        encryption = await self.database.known_encryption()
        prepared = list(encryption.jobs(jobs))
        while True:
            async with self._noting_refusals():
                answers = await self.persistently(
                    partial(self._submit_unique, gate, prepared, atomically)
                )
            again = encryption.to_repeat(jobs, answers)
            if not again:
                return answers
            for place, job in again.items():
                prepared[place] = job

    async def _submit_unique(
        self, gate: Gate, jobs: Sequence[NewJob], atomically: bool, repeated: bool
    ) -> list[Submitted]:
        if len(jobs) == 1:
            async with gate:
                return await self._unique_on(None, jobs, repeated)
        answers: list[Submitted] = []
        with contextlib.suppress(_Undo):
            async with self.database.transaction("submit") as connection:
                answers = await self._unique_on(connection, jobs, repeated)
                unfit = any(answer.outcome == "encrypt" for answer in answers)
                if unfit or (atomically and any(a.conflict or a.refused for a in answers)):
                    raise _Undo
        return answers

    async def _unique_on(
        self, connection: Connection | None, jobs: Sequence[NewJob], repeated: bool
    ) -> list[Submitted]:
        encoded = msgspec.json.encode(jobs).decode()
        rows = await self.database.fetch("submit_unique", encoded, repeated, on=connection)
        return [Submitted(*row) for row in rows]

    async def _submit_on(
        self, connection: Connection, jobs: Sequence[NewJob], repeated: bool, how: str = "own"
    ) -> list[Submitted]:
        encoded = msgspec.json.encode(jobs).decode()
        rows = await self.database.fetch("submit_jobs", encoded, repeated, how, on=connection)
        return [Submitted(*row) for row in rows]

    async def persistently(self, attempt: Callable[[bool], Awaitable[T]]) -> T:
        """Repeat a submit through a restart or a failover, up to `connect_timeout`.

        A failed attempt may have been committed and only its answer lost. So the next one is called
        with `repeated`, and stores what is missing and nothing twice. Before that, the connection that
        gave no answer is ended on the server's side: otherwise what was sent on it could arrive when
        the job has already run, and store it again.
        """
        end = monotonic() + self.database.settings.connect_timeout
        pause, repeated = 0.05, False
        unanswered: set[int] = set()
        while True:
            try:
                while unanswered:
                    await self.database.end_backend(min(unanswered))
                    unanswered.remove(min(unanswered))
                return await attempt(repeated)
            except StoreUnavailable as error:
                if error.backend is not None and not error.answered:
                    unanswered.add(error.backend)
                if monotonic() + pause >= end:
                    raise
            await asyncio.sleep(pause * (0.5 + unit()))
            pause, repeated = min(pause * 2, 1.0), True

    async def get_jobs(self, namespace: str, ids: Sequence[UUID]) -> list[Job]:
        rows = await self.database.fetch("get_jobs", namespace, ids)
        return [to_job(row, self.database.encryption) for row in rows]

    async def list_jobs(
        self, namespace: str, *, state: State | None, task: str | None, queue: str | None,
        tag: str | None, before: UUID | None, limit: int, outcome: OutcomeKind | None = None,
    ) -> tuple[list[Job], UUID | None]:  # fmt: skip
        """Return those that match among the newest 20,000 that are older than `before`, and the last
        that was looked at if there are more and the page isn't full."""
        rows = await self.database.fetch(
            "list_jobs", namespace, state, task, queue, tag, before, limit,
            outcome.label if outcome is not None else None, _LOOKED,
        )  # fmt: skip
        until = None
        if len(rows) < limit:
            until = await self._first(UUID, "job_after", namespace, state, before, _LOOKED)
        return [to_job(row, self.database.encryption) for row in rows], until

    async def count_jobs(
        self, namespace: str, *, state: State | None, task: str | None, queue: str | None
    ) -> dict[str, int]:
        rows = await self.database.fetch("count_jobs", namespace, state, task, queue)
        return {State(row[0]).label: row[1] for row in rows}

    async def cancel_jobs(self, namespace: str, ids: Sequence[UUID]) -> dict[UUID, str]:
        """Return, for each job that could be cancelled, 'cancelled', or 'stopping' if it was running."""
        done: dict[UUID, str] = {}
        for _ in range(_LOOKS):
            rest = [id for id in ids if id not in done]
            done.update(await self.database.fetch("cancel_jobs", namespace, rest))
            # A job that moved between the tables meanwhile (released, claimed, given back) was missed.
            missed = await self.get_jobs(namespace, [id for id in rest if id not in done])
            if all(State.parse(job.state).is_final for job in missed):
                break
        return done

    async def retry_jobs(self, namespace: str, ids: Sequence[UUID]) -> list[UUID]:
        return await self._all(UUID, "retry_jobs", namespace, ids)

    async def discard_jobs(self, namespace: str, ids: Sequence[UUID]) -> list[UUID]:
        return await self._all(UUID, "discard_jobs", namespace, ids)

    async def find_dead(
        self, namespace: str, *, task: str | None, queue: str | None, error: str | None, limit: int
    ) -> list[UUID]:
        return await self._all(UUID, "find_dead", namespace, task, queue, error, limit)

    async def count_dead(
        self, namespace: str, *, task: str | None, queue: str | None
    ) -> list[DeadCount]:
        """Count the dead letters by task and type of error, the most frequent first."""
        return await self._all(DeadCount, "count_dead", namespace, task, queue)

    async def now(self) -> datetime:
        """Return the database's time, the only one by which anything is judged."""
        return await self._one(datetime, "now")

    async def explain_job(self, namespace: str, id: UUID) -> dict[str, Any] | None:
        rows = await self.database.fetch("explain_job", namespace, id)
        if not rows:
            return None
        facts, encryption = dict(rows[0]), self.database.encryption
        facts["error_message"] = encryption.shown_text(facts["error_message"], id)
        if TEXT in (facts["last_attempt"] or ""):
            attempt = msgspec.json.decode(facts["last_attempt"], type=Attempt)
            (shown,) = encryption.shown_attempts([attempt], id)
            facts["last_attempt"] = msgspec.json.encode(shown).decode()
        return facts

    async def explain_limits(self, namespace: str, id: UUID) -> list[dict[str, Any]]:
        """Return the limits that a ready job is under, and the job before it of its order_key."""
        return [dict(row) for row in await self.database.fetch("explain_limits", namespace, id)]

    async def explain_permits(self, namespace: str, id: UUID) -> list[dict[str, Any]]:
        """Return the limits that a running job's handler waits for."""
        return [dict(row) for row in await self.database.fetch("explain_permits", namespace, id)]

    async def explain_resources(self, namespace: str, lane: str) -> dict[str, Any]:
        """Return the workers of a lane that asks for resources, what runs there, and its reservation."""
        rows = await self.database.fetch("explain_resources", namespace, lane)
        reserved = await self.database.fetch("reserved_on", namespace, lane.partition("#")[0])
        return {
            "machines": [
                Machine(
                    row["name"],
                    msgspec.json.decode(row["resources"]),
                    tuple(row["labels"]),
                    msgspec.json.decode(row["holders"], type=list[Holder]),
                    row["reserved"],
                )
                for row in rows
            ],
            "reserved_on": reserved[0]["name"] if reserved else None,
        }

    async def machines_of_lane(self, namespace: str, lane: str) -> dict[str, Any]:
        """Return the workers of a lane that asks for resources, and what they have."""
        rows = await self.database.fetch("machines_of_lane", namespace, lane)
        return {
            "machines": [
                Machine(row["name"], msgspec.json.decode(row["resources"]), tuple(row["labels"]))
                for row in rows
            ]
        }

    async def list_nodes(
        self, namespace: str, *, ended: bool = False, id: UUID | None = None, most: int = 1_000,
        skip: int = 0,
    ) -> list[NodeStatus]:  # fmt: skip
        return await self._all(NodeStatus, "list_nodes", namespace, ended, id, most, skip)

    async def shard_map(self) -> list[ShardStatus]:
        return await self._all(ShardStatus, "shard_map")

    async def recent_takeovers(self, seconds: float) -> list[Takeover]:
        return await self._all(Takeover, "recent_shard_moves", seconds)

    async def list_queues(
        self, namespace: str, name: str | None = None, *, counted: bool = True
    ) -> list[QueueStatus]:
        queues = await self._all(QueueStatus, "list_queues", namespace, name)
        if not counted:
            return queues
        named = [name] if name is not None else None
        counts = await QueueCountStore(self.database).read(namespace, named)
        return [_with_count(queue, counts.get((namespace, queue.name))) for queue in queues]

    async def known_queues(self, namespace: str) -> list[str]:
        return await self._all(str, "known_queues", namespace)

    async def pause_queue(self, namespace: str, name: str) -> datetime:
        return await self._one(datetime, "pause_queue", namespace, name)

    async def set_max_run_time(self, namespace: str, name: str, seconds: float | None) -> None:
        await self.database.fetch("set_queue_max_run_time", namespace, name, seconds)

    async def set_queue_history(self, namespace: str, name: str, mode: str) -> None:
        await self.database.fetch("set_queue_history", namespace, name, mode)

    async def find_trace(self, namespace: str, id: UUID) -> Trace | None:
        return await self._first(Trace, "find_trace", namespace, id)

    async def resume_queue(self, namespace: str, name: str) -> bool:
        return bool(await self.database.fetch("resume_queue", namespace, name))


def _with_count(queue: QueueStatus, count: QueueCount | None) -> QueueStatus:
    if count is None:
        return queue
    return msgspec.structs.replace(
        queue, ready=count.ready, running=count.running, scheduled=count.scheduled + count.waiting,
        lag=count.lag, exact=count.exact,
    )  # fmt: skip


def _columns_of_made(job: NewJob) -> tuple[Any, ...] | None:
    """Return the arguments of `rota.submit_made`; None if it is more than a job that is due now."""
    if (
        job.queue is None or job.guarantee is None or job.priority is None
        or job.max_attempts is None or job.needs
    ):  # fmt: skip
        return None  # its task's code isn't here, or it needs something
    others = (
        job.at, job.delay, job.key, job.concurrency_key, job.fairness_key, job.order_key,
        job.order_failure, job.unique,
    )  # fmt: skip
    if any(other is not None for other in others):
        return None
    headers = None if job.headers is None else bytes(job.headers).decode()
    return (
        job.id, job.namespace, job.task, job.queue, bytes(job.payload).decode(), headers, job.priority,
        job.guarantee, job.max_attempts, job.timeout,
    )  # fmt: skip


def to_job(row: Any, encryption: Encryption) -> Job:
    fields, id = dict(row), row["id"]
    fields["queue"], needs = split_lane(row["lane"])
    fields |= asked_of(needs)
    failure = msgspec.json.decode(row["error"], type=Failure) if row["error"] else None
    attempts = _attempts.decode(row["attempts"]) if row["attempts"] else []
    fields |= {
        "state": State(row["state"]).label,
        "guarantee": Guarantee(row["guarantee"]).label,
        "headers": msgspec.json.decode(row["headers"]) if row["headers"] else {},
        "cancel_requested_at": row["cancel_at"],
        "payload": encryption.shown(row["payload"], id, "payload", row["task"]),
        "result": encryption.shown(row["result"], id, "result"),
        "progress": encryption.shown(row["progress"], id, "progress"),
        "error": encryption.shown_failure(failure, id),
        "attempts": encryption.shown_attempts(attempts, id),
    }
    return msgspec.convert(fields, Job)


class _Undo(Exception):
    pass
