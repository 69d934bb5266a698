"""Submitting many jobs at once.

Protocol. One call is one transaction: all of its jobs are stored when it returns, none when it raises.
What follows from the tasks' defaults and from the time is computed here: in SQL, row by row, it costs
several times as much as storing the rows. When the answer to a commit is lost, the call is repeated
through rota.submit_jobs(), which stores what is missing and nothing twice.

`copy_jobs` is for jobs that are alike but for their arguments, by COPY. `write` is for jobs that differ,
by INSERT, because COPY can't pass row-level security. Jobs with a key go through rota.submit_jobs() in
the same transaction, since only it can decide whether the key was used before. So do jobs with a
concurrency_key, a fairness_key or an order_key: it puts them into their sublanes. A key's conflict is
an answer, and stores nothing for that job alone. Unique jobs go through rota.submit_unique(), last: from
there on the transaction has the locks of their keys. The other jobs bypass that function, and with it
rota.check_job(): callers have to check as strictly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from rota.core.rank import rank_of
from rota.core.resources import with_declared
from rota.store.database import Connection
from rota.store.encrypted import Encryption
from rota.store.jobs import JobStore
from rota.store.rows import (
    Bulk,
    NewJob,
    Submitted,
    TaskDefaults,
    lane_name,
    share_of,
    sublane_of,
)

T = TypeVar("T")

_PART = 1_000

# After the id and the rank or shard.
_COLUMNS = (
    "payload", "due_at", "timeout", "priority", "guarantee", "max_attempts", "lane", "task", "headers",
)  # fmt: skip


_PLAIN = TaskDefaults()


class _Opening(msgspec.Struct, frozen=True):
    """The database's time, and the settings that decide in which table a job begins."""

    now: datetime
    horizon_ms: int  # jobs that are due within it are ready
    shards: int
    counted: bool = False  # the queue may be full

    @property
    def horizon(self) -> datetime:
        return self.now + timedelta(milliseconds=self.horizon_ms)


def shard_of(id: UUID, shards: int) -> int:
    """Return the same number as rota.shard_of() in SQL."""
    return (id.int & 0xFFFFFFFF) % shards


class BulkStore(JobStore):
    _folded = False  # depths were brought up to date for what is being stored

    async def copy_jobs(self, bulk: Bulk) -> None:
        """Store jobs that are alike but for their arguments, without keys."""
        bulk = (await self.database.known_encryption()).bulk(bulk)

        async def attempt(repeated: bool) -> None:
            if repeated:
                async with self.database.transaction("submit") as connection:
                    await self._submit_parts(connection, bulk.jobs())
            else:
                async with self.database.transaction("copy") as connection:
                    await self._copy(connection, bulk)

        await self._with_fresh_depths(bulk.template.namespace, lambda: self.persistently(attempt))

    async def _with_fresh_depths(
        self, namespace: str, attempt: Callable[[], Coroutine[Any, Any, T]]
    ) -> T:
        """Store jobs; if a queue turns out to be counted, begin anew after its depth was brought up to
        date: in a transaction of its own, as one that stores many jobs would keep others from it."""
        self._folded = False
        try:
            return await attempt()
        except _FoldFirst:
            await self.database.fetch("fold_flow", namespace)
            self._folded = True
        async with self._noting_refusals():
            return await attempt()

    async def write(self, jobs: Sequence[NewJob]) -> list[Submitted]:
        """Store jobs of one namespace; the answers are in their order."""
        encryption = await self.database.known_encryption()
        unique = [job for job in jobs if job.unique is not None]
        others = encryption.jobs([job for job in jobs if job.unique is None] if unique else jobs)

        async def attempt(repeated: bool) -> list[Submitted]:
            async with self.database.transaction("bulk") as connection:
                write = self._submit_parts if repeated else self._write_on
                answers = await write(connection, others) if others else []
                if not unique:
                    return answers
                found = await self._write_unique(connection, encryption, unique, repeated)
                return _in_order(jobs, answers, found)

        return await self._with_fresh_depths(jobs[0].namespace, lambda: self.persistently(attempt))

    async def _write_unique(
        self, connection: Connection, encryption: Encryption, jobs: list[NewJob], repeated: bool
    ) -> list[Submitted]:
        answers = await self._unique_on(connection, encryption.jobs(jobs), repeated)
        while again := encryption.to_repeat(jobs, answers):
            others = await self._unique_on(connection, list(again.values()), repeated)
            for place, answer in zip(again, others, strict=True):
                answers[place] = answer
        return answers

    async def _submit_parts(
        self, connection: Connection, jobs: Sequence[NewJob]
    ) -> list[Submitted]:
        """Store those of the jobs that an earlier attempt has not stored."""
        answers: list[Submitted] = []
        for start in range(0, len(jobs), _PART):
            part = jobs[start : start + _PART]
            answers += await self._submit_on(connection, part, True, "bulk")
        return answers

    async def _copy(self, connection: Connection, bulk: Bulk) -> None:
        job = bulk.template
        lane = lane_name(job.namespace, job.queue or "default", job.needs or ())
        opening = await self._one(_Opening, "open_copy", lane, on=connection)
        if opening.counted:
            queue = job.queue or "default"
            await self._enter(connection, job.namespace, {queue: len(bulk.ids)})
        _, due_at, timeout, priority, *rest = _row(job, _PLAIN, lane, opening.now)
        ready = due_at <= opening.horizon
        rank = rank_of(due_at, priority)
        records = [
            (id, rank if ready else shard_of(id, opening.shards), payload.decode(), due_at, timeout,
             priority, *rest, job.namespace)
            for id, payload in zip(bulk.ids, bulk.payloads, strict=True)
        ]  # fmt: skip
        await connection.copy_records_to_table(
            "present" if ready else "future",
            schema_name=self.database.schema,
            columns=["id", "rank" if ready else "shard", *_COLUMNS, "namespace"],
            records=records,
        )
        if ready:
            await self._hint(connection, job.namespace, {lane: (rank, len(records))})

    async def _write_on(self, connection: Connection, jobs: Sequence[NewJob]) -> list[Submitted]:
        keyless = [job for job in jobs if not _has_key(job)]
        keyed = [job for job in jobs if _has_key(job)]
        if keyless:
            await self._add(connection, keyless)
        found: list[Submitted] = []
        for start in range(0, len(keyed), _PART):
            part = keyed[start : start + _PART]
            found += await self._submit_on(connection, part, False, "bulk")
        answers = iter(found)
        return [
            next(answers) if _has_key(job) else Submitted(job.id, existed=False, conflict=False)
            for job in jobs
        ]

    async def _add(self, connection: Connection, jobs: Sequence[NewJob]) -> None:
        namespace, tasks = jobs[0].namespace, {job.task for job in jobs}
        opening = await self._one(_Opening, "open_bulk", on=connection)
        rows = await self.database.fetch("defaults_of_tasks", namespace, list(tasks), on=connection)
        known = {name: TaskDefaults(*rest) for name, *rest in rows}
        horizon = opening.horizon
        ready, later = [], []
        lanes: dict[str, tuple[int, int]] = {}  # the lowest rank, how many
        spelled: dict[Any, str] = {}
        sizes: Counter[str] = Counter()  # of queues
        for job in jobs:
            defaults = known.get(job.task, _PLAIN)
            needs = with_declared(job.needs, defaults.needs)
            place = (job.queue or defaults.queue, tuple(needs))
            if (lane := spelled.get(place)) is None:
                lane = spelled[place] = lane_name(namespace, *place)
            sizes[place[0]] += 1
            share = share_of(limited_task=job.task) if defaults.limited else None
            lane = sublane_of(lane, share)
            row = (*_row(job, defaults, lane, opening.now), share)
            due_at, priority = row[1], row[3]
            if due_at > horizon:
                later.append((job.id, shard_of(job.id, opening.shards), *row))
            else:
                rank = rank_of(due_at, priority)
                lowest, count = lanes.get(lane, (rank, 0))
                lanes[lane] = (min(lowest, rank), count + 1)
                ready.append((job.id, rank, *row))
        counted = await self._all(str, "ensure_lanes", sorted(spelled.values()), on=connection)
        if counted:
            await self._enter(connection, namespace, {queue: sizes[queue] for queue in counted})
        for query, rows in (("add_future", later), ("add_ready", ready)):
            if rows:
                columns = [list(column) for column in zip(*rows, strict=True)]
                await self.database.fetch(query, namespace, *columns, on=connection)
        if lanes:
            await self._hint(connection, namespace, lanes)

    async def _enter(
        self, connection: Connection, namespace: str, sizes: Mapping[str, int]
    ) -> None:
        """Count the jobs that come to these queues, or raise `QueueFull`."""
        if not self._folded:
            raise _FoldFirst
        queues, jobs = list(sizes), list(sizes.values())
        await self.database.fetch("enter_queues", namespace, queues, jobs, on=connection)

    async def _hint(
        self, connection: Connection, namespace: str, lanes: dict[str, tuple[int, int]]
    ) -> None:
        ranks, counts = zip(*lanes.values(), strict=True)
        await self.database.fetch(
            "hint_lanes", namespace, list(lanes), ranks, counts, on=connection
        )


class _FoldFirst(Exception):
    """Raised to leave a transaction that has found a counted queue."""


def _in_order(
    jobs: Sequence[NewJob], others: Sequence[Submitted], unique: Sequence[Submitted]
) -> list[Submitted]:
    """Return the answers in the order of the jobs."""
    plain, special = iter(others), iter(unique)
    return [next(plain if job.unique is None else special) for job in jobs]


def _has_key(job: NewJob) -> bool:
    keys = job.key, job.concurrency_key, job.fairness_key, job.order_key
    return any(key is not None for key in keys)


def _row(job: NewJob, defaults: TaskDefaults, lane: str, now: datetime) -> tuple[Any, ...]:
    """Return the values of _COLUMNS. Zero is a priority: only None takes the default."""
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
