"""The statements of nodes: claim, finish, release, reap. One short method per query.

Every write carries the node and the token it was claimed under. The count that comes back is how
many rows still agreed; the others had moved on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from rota.errors import StoreUnavailable
from rota.store.batches import BatchStore
from rota.store.database import Connection, Database, Store
from rota.store.driver_errors import translated_errors
from rota.store.rows import columns_of

NIL = UUID(int=0)
LOWEST_RANK = -(2**63)

# How long to wait for a lock behind which readers of a day, or all finishes, have to wait.
_READERS_WAIT = "200ms"
_EVERYBODY_WAITS = "50ms"
_VACUUM_SECONDS = 3600

_STRAYS_LOOKED_AT = 100_000  # rows that one look for running jobs without a batch reads


class LaneClaim(msgspec.Struct, frozen=True):
    """A request for up to `slots` jobs of a lane, from after (rank, id)."""

    lane: str
    slots: int
    rank: int = LOWEST_RANK
    id: UUID = NIL


class Succeeded(msgspec.Struct):
    """A success. Seconds are by the node's monotonic clock; SQL makes moments of them."""

    id: UUID
    token: int
    ran: float
    ended: float  # monotonic seconds
    result: str | None = None
    error: str | None = None

    @property
    def size(self) -> int:
        """About how many bytes of text it adds to its statement. So for all outcomes."""
        if self.result is None and self.error is None:
            return 0
        return len(self.result or "") + len(self.error or "")


class Ended(msgspec.Struct):
    """A job that is out of attempts, or was cancelled."""

    id: UUID
    token: int
    state: int
    entry: str | None
    error: str | None
    crashes: int
    ran: float
    ended: float

    @property
    def size(self) -> int:
        return len(self.entry or "") + len(self.error or "")


class Retried(msgspec.Struct):
    """A job that is tried again after `delay` seconds."""

    id: UUID
    token: int
    delay: float
    entry: str | None
    crashes: int
    ran: float
    ended: float

    @property
    def size(self) -> int:
        return len(self.entry or "")


class Returned(msgspec.Struct):
    """A job that is given back as if it had never been claimed."""

    id: UUID
    token: int

    @property
    def size(self) -> int:
        return 0


def _sorted_columns(jobs: Sequence[Any], *names: str) -> list[list[Any]]:
    """Return these fields as columns, ordered by id: the statements find each row by bisection."""
    return columns_of(sorted(jobs, key=attrgetter("id", "token")), *names)


def _ages(now: float, ended: Sequence[float]) -> list[float]:
    return [now - moment for moment in ended]


def columns_in_order(ids: Sequence[UUID], *others: Sequence[Any]) -> list[list[Any]]:
    """Order ids, tokens and the values that belong to them by id."""
    rows = sorted(zip(ids, *others, strict=True))
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in (ids, *others)]


def _success_columns(jobs: Sequence[Succeeded], now: float) -> list[list[Any]]:
    ids, tokens, results, errors, ran, ended = _sorted_columns(
        jobs, "id", "token", "result", "error", "ran", "ended"
    )
    return [
        ids, tokens, _unless_all_none(results), _unless_all_none(errors), ran, _ages(now, ended)
    ]  # fmt: skip


def _unless_all_none(values: list[str | None]) -> list[str | None]:
    """Return an empty list in place of one of nulls, which is faster to send; unnest fills it up."""
    return values if any(values) else []


class WorkStore(Store):
    """Claims and outcomes, on the hot table."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.batches = BatchStore(database)
        # Whether a queue may keep less than all of its history. Who says no, and is wrong, keeps more.
        self.sparing: Callable[[], bool] = lambda: True
        self.steps_ended: Callable[[], None] = lambda: None  # called when an advancer has to decide

    async def warm(self) -> None:
        """Prepare the claim on every connection of the pool, so that the first claim doesn't wait."""
        if self.database.behind_pooler:
            return  # each statement may run on another connection
        everyone = range(self.database.settings.pool_size)
        await asyncio.gather(*(self._warm_one() for _ in everyone))

    async def _warm_one(self) -> None:
        queries = self.database.queries
        async with self.database.connection() as connection:
            await connection.fetch(queries["claim"], NIL, [], [], [], [], [])

    async def claim(
        self, node: UUID, wishes: Sequence[LaneClaim], tasks: Sequence[str]
    ) -> list[Any]:
        columns = columns_of(wishes, "lane", "rank", "id", "slots")
        return await self.database.fetch("claim", node, *columns, tasks)

    async def advertise_idle(self, node: UUID, slots: int) -> None:
        """Advertise this many free slots, so that hints are sent to this node."""
        await self.database.fetch("advertise_idle", node, slots)

    async def withdraw_idle(self, node: UUID) -> None:
        await self.database.fetch("withdraw_idle", node)

    async def pass_on(
        self, node: UUID, namespace: str, lanes: Sequence[str], ranks: Sequence[int],
        counts: Sequence[int],
    ) -> None:  # fmt: skip
        await self.database.fetch("pass_on", node, namespace, lanes, ranks, counts)

    async def mark_started(
        self, node: UUID, ids: Sequence[UUID], tokens: Sequence[int]
    ) -> set[UUID]:
        """Return the jobs that may start. The others are no longer this node's, or were cancelled."""
        rows = await self.database.fetch("mark_started", node, *columns_in_order(ids, tokens))
        return {row[0] for row in rows}

    async def adopt_options(
        self, node: UUID, wanted: Sequence[tuple[UUID, int, int, int, float | None]]
    ) -> list[Any]:
        """Give jobs the guarantees of their tasks, and steps also what their workflows leave open."""
        columns = [list(column) for column in zip(*sorted(wanted), strict=True)]
        return await self.database.fetch("adopt_options", node, *columns)

    async def begin_scheduled(
        self, node: UUID, ids: Sequence[UUID], tokens: Sequence[int]
    ) -> dict[UUID, str]:
        """Return start, skip or wait for each job that is still this node's."""
        return dict(await self.database.fetch("begin_scheduled", node, ids, tokens))

    async def finish_succeeded(
        self, node: UUID, jobs: Sequence[Succeeded], now: float, connection: Connection = None,
        database_now: datetime | None = None,
    ) -> int:  # fmt: skip
        columns = _success_columns(jobs, now)
        name = "finish_sparing" if self.sparing() else "finish_succeeded"
        return await self._count(connection, name, node, *columns, database_now)

    async def finish_steps(
        self, node: UUID, jobs: Sequence[Succeeded], now: float, connection: Connection = None,
        database_now: datetime | None = None,
    ) -> int:  # fmt: skip
        """As `finish_succeeded`, for jobs of workflows' steps, which end with them."""
        arguments = (node, *_success_columns(jobs, now), database_now)
        if connection is None:
            row = (await self.database.fetch("finish_steps", *arguments))[0]
        else:
            row = await connection.fetchrow(self.database.queries["finish_steps"], *arguments)
        if row["pending"]:
            self.steps_ended()
        accepted: int = row["accepted"]
        return accepted

    async def finish_ended(
        self, node: UUID, jobs: Sequence[Ended], now: float, connection: Connection = None
    ) -> int:
        *columns, ended = _sorted_columns(jobs, *Ended.__struct_fields__)
        return await self._count(connection, "finish_ended", node, *columns, _ages(now, ended))

    async def finish_retried(
        self, node: UUID, jobs: Sequence[Retried], now: float, connection: Connection = None
    ) -> int:
        *columns, ended = _sorted_columns(jobs, *Retried.__struct_fields__)
        return await self._count(connection, "finish_retried", node, *columns, _ages(now, ended))

    async def give_back(
        self, node: UUID, jobs: Sequence[Returned], connection: Connection = None
    ) -> int:
        columns = _sorted_columns(jobs, "id", "token")
        return await self._count(connection, "give_back", node, *columns)

    async def save_progress(
        self, node: UUID, ids: Sequence[UUID], tokens: Sequence[int], progress: Sequence[str]
    ) -> None:
        columns = columns_in_order(ids, tokens, progress)
        await self.database.fetch("save_progress", node, *columns)

    async def _count(self, connection: Connection, name: str, *arguments: Any) -> int:
        count: int = await self.database.fetchval(name, *arguments, on=connection)
        return count

    async def claim_bounded(
        self, node: UUID, slots: Mapping[str, int], bounds: Mapping[str, tuple[float, float | None]],
        tasks: Sequence[str],
    ) -> list[Any]:  # fmt: skip
        """Claim from lanes of which only those may be taken that have waited, or end in time."""
        lanes = list(slots)
        return await self.database.fetch(
            "claim_bounded", node, lanes, [slots[lane] for lane in lanes],
            [bounds[lane][0] for lane in lanes], [bounds[lane][1] for lane in lanes], tasks,
        )  # fmt: skip

    async def lanes_waited(self, seconds: Mapping[str, float], tasks: Sequence[str]) -> set[str]:
        rows = await self.database.fetch(
            "lanes_waited", list(seconds), list(seconds.values()), tasks
        )
        return {row["lane"] for row in rows}

    async def lanes(self, namespace: str) -> list[Any]:
        return await self.database.fetch("lanes", namespace)

    async def queue_maxima(self, namespace: str) -> dict[str, float]:
        """Return the maximum run times of queues that have one, in seconds."""
        rows = await self.database.fetch("queue_maxima", namespace)
        return {row["name"]: row["max_run_time"] for row in rows}

    async def register_signatures(
        self, namespace: str, release: str, signatures: Mapping[str, str]
    ) -> None:
        await self.database.fetch(
            "register_signatures", namespace, release, list(signatures), list(signatures.values())
        )

    async def register_tasks(self, namespace: str, columns: Sequence[Sequence[Any]]) -> None:
        await self.database.fetch("register_tasks", namespace, *columns)


class UpkeepStore(Store):
    """Releasing, reaping, and keeping the tables in shape."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.work = WorkStore(database)

    async def shards(self) -> int:
        rows = await self.database.fetch("open_bulk")
        shards: int = rows[0]["shards"]
        return shards

    async def release(
        self, shards: Sequence[int], epochs: Sequence[int | None], limit: int
    ) -> tuple[int, list[int]]:
        """Make due jobs ready; return how many, and the shards that another scheduler owns by now.

        Of a shard without an epoch only overdue jobs are released.
        """
        rows = await self.database.fetch("release", shards, epochs, limit)
        return rows[0][0], rows[0][1]

    async def forget_shard_moves(self) -> None:
        await self.database.fetch("forget_shard_moves")

    async def declare_dead(self) -> list[Any]:
        return await self.database.fetch("declare_dead")

    async def note_strays(self, after: UUID = NIL) -> tuple[int, UUID]:
        """Record batches for running jobs without one; return how many, and where to go on."""
        rows = await self.database.fetch("note_strays", after, _STRAYS_LOOKED_AT)
        return rows[0]["noted"], rows[0]["until"] or NIL

    async def make_days(self, ahead: int) -> int:
        """Make the partitions of the coming days; return how many. A locked one is left for later."""
        for row in await self.database.fetch("days_of_another_size"):
            await self._drop_within(_EVERYBODY_WAITS, row["name"], False, 0)
        made = 0
        for row in await self.database.fetch("missing_days", ahead):
            made += await self._make("make_partition", row["parent"], row["day"])
        for row in await self.database.fetch("missing_hours"):
            made += await self._make("make_hour", row["hour"])
        return made

    async def _make(self, query: str, *arguments: Any) -> bool:
        """Make a partition, in a transaction of its own: its locks are short."""
        try:
            made: bool = await self.database.fetchval(query, *arguments)
        except StoreUnavailable as error:
            if not isinstance(error.__cause__, asyncpg.LockNotAvailableError):
                raise
            return False
        return made

    async def drop_old_days(
        self, retention_days: int, ledger_days: int, log_days: int,
        archived: Mapping[str, int] | None = None,
    ) -> list[str]:  # fmt: skip
        """Drop old partitions, and return their names. One that is being read is left for later.

        With `archived`, days of the past that have rows are dropped only if they are in it, and have as
        many rows as it says.
        """
        past = await self.database.fetch("old_days", retention_days)
        if archived is not None:
            past = [row for row in past if not row["filled"] or row["name"] in archived]
        ledger = await self.database.fetch("old_occurrence_days", ledger_days)
        logs = await self.database.fetch("old_log_days", log_days)
        traces = await self.database.fetch("old_trace_days", retention_days)
        await self.database.fetch("forget_traces", retention_days)
        await self.database.fetch("forget_occurrences", ledger_days)
        await self.database.fetch("forget_log_lines", log_days)
        await self.database.fetch("close_backfills")
        old = (*past, *ledger, *logs, *traces)
        known = archived or {}
        return [
            row["name"]
            for row in old
            if await self._drop_day(row["name"], row["filled"], known.get(row["name"]))
        ]

    async def _drop_day(self, name: str, filled: bool, rows: int | None) -> bool:
        """Drop a partition; False if its locks could not be had.

        Its rows are truncated first, which locks nothing but the partition. To drop the table locks its
        parent, and finishes queue up behind a wait for that lock. So the wait is short, and while a long
        reader (pg_dump) holds the lock the partition stays, empty.
        """
        return (
            not filled or await self._drop_within(_READERS_WAIT, name, True, rows)
        ) and await self._drop_within(_EVERYBODY_WAITS, name, False)

    async def _drop_within(
        self, wait: str, name: str, rows_only: bool, rows: int | None = None
    ) -> bool:
        """Drop a day or its rows; False if its locks could not be had in time.

        With `rows`, also if it has another number of rows.
        """
        drop = self.database.queries["drop_day"]
        async with self.database.connection() as connection:
            try:
                async with connection.transaction():
                    await connection.execute(f"set local lock_timeout = '{wait}'")
                    dropped: bool = await connection.fetchval(drop, name, rows_only, rows)
            except (asyncpg.LockNotAvailableError, asyncpg.UndefinedTableError):
                return False
        return dropped

    async def forget_ended(self, retention_days: int, dead_letter_days: int, limit: int) -> int:
        return await self._one(int, "forget_ended", retention_days, dead_letter_days, limit)

    async def forget_old(self, retention_days: int, limit: int) -> int:
        return await self._one(int, "forget_old", retention_days, limit)

    async def forget_signals(self, retention_days: int, limit: int) -> int:
        return await self._one(int, "forget_signals", retention_days, limit)

    async def forget_runs(self, retention_days: int, limit: int) -> int:
        return await self._one(int, "forget_runs", retention_days, limit)

    async def dead_rows(self) -> tuple[int, int]:
        rows = await self.database.fetch("dead_rows")
        return (rows[0][0], rows[0][1]) if rows else (0, 0)

    async def vacuum_present(self) -> None:
        """Vacuum on a dedicated connection: a large table takes longer than the statement timeout."""
        connection = await self.database.dedicated()
        try:
            with translated_errors():
                if not self.database.behind_pooler:  # there a setting would stay with others
                    await connection.execute(f"set statement_timeout = '{_VACUUM_SECONDS}s'")
                # TRUNCATE would take an exclusive lock for space that is needed again at once.
                await connection.execute(
                    f"vacuum (truncate off) {self.database.schema}.present",
                    timeout=_VACUUM_SECONDS + 5.0,
                )
        finally:
            await connection.close(timeout=5)
