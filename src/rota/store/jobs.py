"""The store: one short method per query. Nothing outside this package writes SQL."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from time import monotonic
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from rota.core.rank import rank_of
from rota.errors import StoreUnavailable
from rota.lib.encryption import TEXT
from rota.lib.ids import unit
from rota.model import (
    Attempt,
    Job,
    NodeStatus,
    OutcomeKind,
    QueueStatus,
    ShardStatus,
    State,
    Takeover,
)
from rota.store.database import Database
from rota.store.rows import Bulk, NewJob, Submitted, lane_name, to_job, to_node, to_queue

T = TypeVar("T")

_PART = 1_000
_LOOKS = 5

# What jobs of one bulk have in common.
_ALIKE = ["due_at", "timeout", "priority", "guarantee", "max_attempts", "namespace", "lane", "task",
          "headers"]  # fmt: skip


def shard_of(id: UUID, shards: int) -> int:
    """The same number as rota.shard_of() gives."""
    return (id.int & 0xFFFFFFFF) % shards


class JobStore:
    """Submitting, asking about and steering jobs."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._known_lanes: set[str] = set()

    async def submit_jobs(self, jobs: Sequence[NewJob]) -> list[Submitted]:
        """In order, each on its own: a conflict of one key leaves the others stored."""
        jobs = (await self.database.known_encryption()).jobs(jobs)
        encoded = msgspec.json.encode(jobs).decode()

        async def attempt(repeated: bool) -> list[Submitted]:
            rows = await self.database.fetch("submit_jobs", encoded, repeated)
            return [Submitted(*row) for row in rows]

        return await self.persistently(attempt)

    async def submit_atomically(self, jobs: Sequence[NewJob]) -> list[Submitted]:
        """All or none: a conflict of one key stores nothing, and comes back as an answer."""
        jobs = (await self.database.known_encryption()).jobs(jobs)

        async def attempt(repeated: bool) -> list[Submitted]:
            answers: list[Submitted] = []
            with contextlib.suppress(_Undo):
                async with self.database.transaction("submit") as connection:
                    answers = await self._submit_on(connection, jobs, repeated)
                    if any(answer.conflict for answer in answers):
                        raise _Undo
            return answers

        return await self.persistently(attempt)

    async def copy_jobs(self, bulk: Bulk) -> None:
        """Many at once, alike but for their arguments, without keys: by COPY, several times as fast."""
        bulk = (await self.database.known_encryption()).bulk(bulk)

        async def attempt(repeated: bool) -> None:
            if not repeated:
                await self._copy(bulk)
                return
            # The COPY may have been committed. The slow road stores only what is missing.
            jobs = bulk.jobs()
            async with self.database.transaction("submit") as connection:
                for start in range(0, len(jobs), _PART):
                    await self._submit_on(connection, jobs[start : start + _PART], repeated)

        await self.persistently(attempt)

    async def _submit_on(
        self, connection: Any, jobs: Sequence[NewJob], repeated: bool
    ) -> list[Submitted]:
        encoded = msgspec.json.encode(jobs).decode()
        rows = await connection.fetch(self.database.queries["submit_jobs"], encoded, repeated)
        return [Submitted(*row) for row in rows]

    async def persistently(self, attempt: Callable[[bool], Awaitable[T]]) -> T:
        """Through a restart or a failover, up to `connect_timeout`.

        A failed attempt may have been committed and only its answer lost: so the next one is told
        that it is a repetition, which stores what is missing and nothing twice. Before that, the
        connection that gave no answer is ended on the server's side: otherwise what was sent on it
        could arrive when the job has already run, and make it anew.
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
                if error.backend is not None:
                    unanswered.add(error.backend)
                if monotonic() + pause >= end:
                    raise
            await asyncio.sleep(pause * (0.5 + unit()))
            pause, repeated = min(pause * 2, 1.0), True

    async def _copy(self, bulk: Bulk) -> None:
        queries, job = self.database.queries, bulk.template
        lane = lane_name(job.namespace, job.queue or "default", job.needs or ())
        async with self.database.transaction("copy") as connection:
            opened = await connection.fetchrow(queries["open_bulk"])
            await self._ensure_lanes(connection, job.namespace, {lane})
            now: datetime = opened["now"]
            due_at = job.at or now + timedelta(seconds=job.delay or 0)
            if due_at > now + timedelta(milliseconds=opened["horizon_ms"]):
                shards = opened["shards"]
                places = [shard_of(id, shards) for id in bulk.ids]
                await self._copy_rows(connection, "future", "shard", bulk, places, due_at, lane)
            else:
                rank, count = rank_of(due_at, job.priority or 0), len(bulk.ids)
                ranks = [rank] * count
                await self._copy_rows(connection, "present", "rank", bulk, ranks, due_at, lane)
                await connection.fetch(
                    queries["hint_lanes"], job.namespace, [lane], [rank], [count]
                )

    async def _copy_rows(
        self, connection: Any, table: str, column: str, bulk: Bulk, places: list[int],
        due_at: datetime, lane: str,
    ) -> None:  # fmt: skip
        job = bulk.template
        alike = (due_at, job.timeout, job.priority or 0, job.guarantee or 1, job.max_attempts or 5,
                 job.namespace, lane, job.task,
                 bytes(job.headers).decode() if job.headers is not None else None)  # fmt: skip
        await connection.copy_records_to_table(
            table,
            schema_name=self.database.schema,
            columns=["id", column, "payload", *_ALIKE],
            records=[
                (id, place, payload.decode(), *alike)
                for id, place, payload in zip(bulk.ids, places, bulk.payloads, strict=True)
            ],
        )

    async def _ensure_lanes(self, connection: Any, namespace: str, lanes: set[str]) -> None:
        unknown = sorted(lanes - self._known_lanes)
        if unknown:
            # Only lanes that an earlier transaction left behind are remembered: what this one makes
            # may still be rolled back.
            rows = await connection.fetch(self.database.queries["lanes"], namespace)
            self._known_lanes.update(row["lane"] for row in rows)
            await connection.fetch(self.database.queries["ensure_lanes"], unknown)

    async def get_jobs(self, namespace: str, ids: Sequence[UUID]) -> list[Job]:
        rows = await self.database.fetch("get_jobs", namespace, ids)
        return [to_job(row, self.database.encryption) for row in rows]

    async def list_jobs(
        self, namespace: str, *, state: State | None, task: str | None, queue: str | None,
        tag: str | None, before: UUID | None, limit: int, outcome: OutcomeKind | None = None,
    ) -> list[Job]:  # fmt: skip
        rows = await self.database.fetch(
            "list_jobs", namespace, state, task, queue, tag, before, limit,
            outcome.label if outcome is not None else None,
        )  # fmt: skip
        return [to_job(row, self.database.encryption) for row in rows]

    async def count_jobs(
        self, namespace: str, *, state: State | None, task: str | None, queue: str | None
    ) -> dict[str, int]:
        rows = await self.database.fetch("count_jobs", namespace, state, task, queue)
        return {State(row[0]).label: row[1] for row in rows}

    async def cancel_jobs(self, namespace: str, ids: Sequence[UUID]) -> dict[UUID, str]:
        """For each job that could be cancelled: 'cancelled', or 'stopping' when it was running."""
        done: dict[UUID, str] = {}
        for _ in range(_LOOKS):
            rest = [id for id in ids if id not in done]
            done.update(await self.database.fetch("cancel_jobs", namespace, rest))
            # A job that was just moving on (released, claimed, given back) was seen by no branch.
            missed = await self.get_jobs(namespace, [id for id in rest if id not in done])
            if all(State.parse(job.state).is_final for job in missed):
                break
        return done

    async def retry_jobs(self, namespace: str, ids: Sequence[UUID]) -> list[UUID]:
        return [row[0] for row in await self.database.fetch("retry_jobs", namespace, ids)]

    async def discard_jobs(self, namespace: str, ids: Sequence[UUID]) -> list[UUID]:
        return [row[0] for row in await self.database.fetch("discard_jobs", namespace, ids)]

    async def find_dead(
        self, namespace: str, *, task: str | None, queue: str | None, error: str | None, limit: int
    ) -> list[UUID]:
        rows = await self.database.fetch("find_dead", namespace, task, queue, error, limit)
        return [row[0] for row in rows]

    async def count_dead(
        self, namespace: str, *, task: str | None, queue: str | None
    ) -> list[dict[str, Any]]:
        """The dead-letter list by task and kind of error, the most frequent first."""
        rows = await self.database.fetch("count_dead", namespace, task, queue)
        return [dict(row) for row in rows]

    async def now(self) -> datetime:
        """The database's time, the only one that counts."""
        now: datetime = await self.database.fetchval("now")
        return now

    async def explain_job(self, namespace: str, id: UUID) -> dict[str, Any] | None:
        rows = await self.database.fetch("explain_job", namespace, id)
        if not rows:
            return None
        facts = dict(rows[0])
        opened = self.database.encryption.shown_text
        facts["error_message"] = opened(facts["error_message"], id)
        facts["last_attempt"] = self._opened_attempt(facts["last_attempt"], id)
        return facts

    def _opened_attempt(self, text: str | None, id: UUID) -> str | None:
        """What an attempt's error says, where it is encrypted."""
        if text is None or TEXT not in text:
            return text
        attempt = msgspec.json.decode(text, type=Attempt)
        (shown,) = self.database.encryption.shown_attempts([attempt], id)
        return msgspec.json.encode(shown).decode()

    async def list_nodes(self, namespace: str, *, ended: bool = False) -> list[NodeStatus]:
        return [to_node(row) for row in await self.database.fetch("list_nodes", namespace, ended)]

    async def shard_map(self) -> list[ShardStatus]:
        rows = await self.database.fetch("shard_map")
        return [
            ShardStatus(
                shard=row["shard"], epoch=row["epoch"],
                owner=row["owner"] if row["held"] else None,
                node=row["name"] if row["held"] else None,
            )
            for row in rows
        ]  # fmt: skip

    async def recent_takeovers(self, seconds: float) -> list[Takeover]:
        rows = await self.database.fetch("recent_shard_moves", seconds)
        return [
            Takeover(
                at=row["at"], shards=row["shards"], owner=row["owner"], node=row["name"],
                previous=row["previous"], previous_node=row["previous_name"], gap=row["gap"],
            )
            for row in rows
        ]  # fmt: skip

    async def list_queues(self, namespace: str) -> list[QueueStatus]:
        return [to_queue(row) for row in await self.database.fetch("list_queues", namespace)]

    async def known_queues(self, namespace: str) -> list[str]:
        return [row["name"] for row in await self.database.fetch("known_queues", namespace)]

    async def pause_queue(self, namespace: str, name: str) -> datetime:
        paused_at: datetime = await self.database.fetchval("pause_queue", namespace, name)
        return paused_at

    async def set_max_run_time(self, namespace: str, name: str, seconds: float | None) -> None:
        await self.database.fetch("set_queue_max_run_time", namespace, name, seconds)

    async def resume_queue(self, namespace: str, name: str) -> bool:
        return bool(await self.database.fetch("resume_queue", namespace, name))


class _Undo(Exception):
    pass
