"""Many different jobs at once: the writing half of a stream of submits.

Protocol. One call is one transaction: all of its jobs are stored when it returns, none when it raises.
Jobs without a key are stored as they are, which costs the database a seventh of rota.submit_jobs();
those with a key go through that function, in the same transaction, since only it can tell whether
the key was used before. A key's conflict is an answer, and stores nothing for that job alone.

What bypasses that function bypasses rota.check_job(): whoever calls has checked as strictly. It is an
INSERT and not a COPY, which would be a little faster, because COPY can't pass row-level security.

When the answer to a commit is lost, the call is repeated through rota.submit_jobs(), which stores what
is missing and nothing twice. See `JobStore.copy_jobs`, which does the same for jobs that are alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from rota.core.rank import rank_of
from rota.store.database import Connection
from rota.store.jobs import JobStore, shard_of
from rota.store.rows import NewJob, Submitted, lane_name

_PART = 1_000


class TaskDefaults(msgspec.Struct, frozen=True):
    """What a task's jobs get where their submit says nothing."""

    queue: str = "default"
    needs: Sequence[str] = ()
    priority: int = 0
    guarantee: int = 1
    max_attempts: int = 5
    timeout: float | None = None


_PLAIN = TaskDefaults()


class Opening(msgspec.Struct, frozen=True):
    """The database's time, and what follows from it for new jobs."""

    now: datetime
    horizon: datetime  # what is due until then is ready
    shards: int
    defaults: dict[str, TaskDefaults]


class BulkStore(JobStore):
    async def write(self, jobs: Sequence[NewJob]) -> list[Submitted]:
        """All in one transaction, in one namespace; the answers in their order."""
        jobs = (await self.database.known_encryption()).jobs(jobs)

        async def attempt(repeated: bool) -> list[Submitted]:
            async with self.database.transaction("bulk") as connection:
                if not repeated:
                    return await self._write_on(connection, jobs)
                answers: list[Submitted] = []
                for start in range(0, len(jobs), _PART):
                    part = jobs[start : start + _PART]
                    answers += await self._submit_on(connection, part, repeated)
                return answers

        return await self.persistently(attempt)

    async def _write_on(self, connection: Connection, jobs: Sequence[NewJob]) -> list[Submitted]:
        keyless = [job for job in jobs if job.key is None]
        if keyless:
            await self._add(connection, keyless)
        if len(keyless) == len(jobs):
            return [Submitted(job.id, existed=False, conflict=False) for job in jobs]
        keyed: Iterator[Submitted] = iter(
            await self._submit_on(connection, [job for job in jobs if job.key is not None], False)
        )
        return [
            Submitted(job.id, existed=False, conflict=False) if job.key is None else next(keyed)
            for job in jobs
        ]

    async def _add(self, connection: Connection, jobs: Sequence[NewJob]) -> None:
        opening = await self._open(connection, jobs[0].namespace, {job.task for job in jobs})
        ready, later = [], []
        lanes: dict[str, tuple[int, int]] = {}  # the lowest rank, how many
        spelled: dict[Any, str] = {}
        for job in jobs:
            defaults = opening.defaults.get(job.task, _PLAIN)
            needs = defaults.needs if job.needs is None else job.needs
            place = (job.queue or defaults.queue, tuple(needs))
            if (lane := spelled.get(place)) is None:
                lane = spelled[place] = lane_name(job.namespace, *place)
            row = _row(job, defaults, lane, opening.now)
            due_at, priority = row[1], row[3]
            if due_at > opening.horizon:
                later.append((job.id, shard_of(job.id, opening.shards), *row))
            else:
                rank = rank_of(due_at, priority)
                lowest, count = lanes.get(lane, (rank, 0))
                lanes[lane] = (min(lowest, rank), count + 1)
                ready.append((job.id, rank, *row))
        namespace = jobs[0].namespace
        await self._ensure_lanes(connection, namespace, set(spelled.values()))
        await self._add_rows(connection, "add_future", namespace, later)
        await self._add_rows(connection, "add_ready", namespace, ready)
        if lanes:
            hints = [list(column) for column in zip(*lanes.values(), strict=True)]
            await connection.fetch(
                self.database.queries["hint_lanes"], namespace, list(lanes), *hints
            )

    async def _open(self, connection: Connection, namespace: str, tasks: set[str]) -> Opening:
        queries = self.database.queries
        opened = await connection.fetchrow(queries["open_bulk"])
        rows = await connection.fetch(queries["defaults_of_tasks"], namespace, list(tasks))
        now: datetime = opened["now"]
        return Opening(
            now=now,
            horizon=now + timedelta(milliseconds=opened["horizon_ms"]),
            shards=opened["shards"],
            defaults={name: TaskDefaults(*rest) for name, *rest in rows},
        )

    async def _add_rows(
        self, connection: Connection, query: str, namespace: str, rows: list[tuple[Any, ...]]
    ) -> None:
        if rows:
            columns = [list(column) for column in zip(*rows, strict=True)]
            await connection.execute(self.database.queries[query], namespace, *columns)


def _row(job: NewJob, defaults: TaskDefaults, lane: str, now: datetime) -> tuple[Any, ...]:
    """As the queries say. Zero is a priority: only what is None was left out."""
    return (
        bytes(job.payload).decode(),
        job.at or (now if job.delay is None else now + timedelta(seconds=job.delay)),
        defaults.timeout if job.timeout is None else job.timeout,
        defaults.priority if job.priority is None else job.priority,
        job.guarantee or defaults.guarantee,
        job.max_attempts or defaults.max_attempts,
        lane,
        job.task,
        None if job.headers is None else bytes(job.headers).decode(),
    )
