"""What nodes do to the store: claim, finish, heartbeat, release, reap. One short method per query.

Every write carries the node and the token it was claimed under. The count that comes back is how
many rows still agreed; the others had moved on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, Protocol, TypeVar
from uuid import UUID

import asyncpg
import msgspec

from rota.errors import StoreUnavailable
from rota.store.batches import BatchStore
from rota.store.database import Connection, Database, translated_errors

NIL = UUID(int=0)
LOWEST_RANK = -(2**63)

# How long to wait for a lock behind which readers of a day, or all finishes, have to wait.
_READERS_WAIT = "200ms"
_EVERYBODY_WAITS = "50ms"
_VACUUM_SECONDS = 3600

_STRAYS_LOOKED_AT = 100_000  # rows that one look for running jobs without a batch reads


class LaneClaim(msgspec.Struct, frozen=True):
    """A wish for up to `slots` jobs of a lane, from after (rank, id)."""

    lane: str
    slots: int
    rank: int = LOWEST_RANK
    id: UUID = NIL


class Succeeded(msgspec.Struct):
    """Seconds are by the node's monotonic clock; moments are made of them in SQL."""

    id: UUID
    token: int
    ran: float
    ended: float  # monotonic seconds
    result: str | None = None
    error: str | None = None

    @property
    def size(self) -> int:
        """About how many bytes of text it brings into its statement. So for all outcomes."""
        return len(self.result or "") + len(self.error or "")


class Ended(msgspec.Struct):
    """Out of attempts, or cancelled."""

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
    """To be tried again after `delay` seconds."""

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
    """Given back as if it had never been claimed."""

    id: UUID
    token: int

    @property
    def size(self) -> int:
        return 0


class _Written(Protocol):
    id: UUID
    token: int


AnyWritten = TypeVar("AnyWritten", bound=_Written)
_id_and_token = attrgetter("id", "token")


def _in_order(jobs: Sequence[AnyWritten]) -> list[AnyWritten]:
    """As the statements want them, which find each by bisection."""
    return sorted(jobs, key=_id_and_token)


def columns_in_order(ids: Sequence[UUID], *others: Sequence[Any]) -> list[list[Any]]:
    """The same for ids, tokens and what belongs to them."""
    rows = sorted(zip(ids, *others, strict=True))
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in (ids, *others)]


def _unless_all_none(values: list[str | None]) -> list[str | None]:
    """Nothing at all is quicker to send than many times nothing; unnest fills it up."""
    return values if any(values) else []


class WorkStore:
    """Claims and outcomes, on the hot table."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.batches = BatchStore(database)

    async def warm(self) -> None:
        """Connections that know the statements of every job: the first ones don't wait for that."""
        if self.database.behind_pooler:
            return  # nobody knows which connection is the next
        everyone = range(self.database.settings.pool_size)
        await asyncio.gather(*(self._warm_one() for _ in everyone))

    async def _warm_one(self) -> None:
        queries = self.database.queries
        async with self.database.connection() as connection:
            await connection.fetch(queries["claim"], NIL, [], [], [], [], [])

    async def claim(
        self, node: UUID, wishes: Sequence[LaneClaim], tasks: Sequence[str]
    ) -> list[Any]:
        return await self.database.fetch(
            "claim",
            node,
            [wish.lane for wish in wishes],
            [wish.rank for wish in wishes],
            [wish.id for wish in wishes],
            [wish.slots for wish in wishes],
            tasks,
        )

    async def advertise_idle(self, node: UUID, slots: int) -> None:
        """Hints are welcome: there are so many free slots."""
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
        """The jobs that may start. The others are no longer ours, or were cancelled."""
        rows = await self.database.fetch("mark_started", node, *columns_in_order(ids, tokens))
        return {row[0] for row in rows}

    async def begin_scheduled(
        self, node: UUID, ids: Sequence[UUID], tokens: Sequence[int]
    ) -> dict[UUID, str]:
        """start, skip or wait for each that is still ours."""
        return dict(await self.database.fetch("begin_scheduled", node, ids, tokens))

    async def finish_succeeded(
        self, node: UUID, jobs: Sequence[Succeeded], now: float, connection: Connection = None,
        database_now: datetime | None = None,
    ) -> int:  # fmt: skip
        jobs = _in_order(jobs)
        return await self._count(
            connection,
            "finish_succeeded",
            node,
            [job.id for job in jobs],
            [job.token for job in jobs],
            _unless_all_none([job.result for job in jobs]),
            _unless_all_none([job.error for job in jobs]),
            [job.ran for job in jobs],
            [now - job.ended for job in jobs],
            database_now,
        )

    async def finish_ended(
        self, node: UUID, jobs: Sequence[Ended], now: float, connection: Connection = None
    ) -> int:
        jobs = _in_order(jobs)
        return await self._count(
            connection,
            "finish_ended",
            node,
            [job.id for job in jobs],
            [job.token for job in jobs],
            [job.state for job in jobs],
            [job.entry for job in jobs],
            [job.error for job in jobs],
            [job.crashes for job in jobs],
            [job.ran for job in jobs],
            [now - job.ended for job in jobs],
        )

    async def finish_retried(
        self, node: UUID, jobs: Sequence[Retried], now: float, connection: Connection = None
    ) -> int:
        jobs = _in_order(jobs)
        return await self._count(
            connection,
            "finish_retried",
            node,
            [job.id for job in jobs],
            [job.token for job in jobs],
            [job.delay for job in jobs],
            [job.entry for job in jobs],
            [job.crashes for job in jobs],
            [job.ran for job in jobs],
            [now - job.ended for job in jobs],
        )

    async def give_back(
        self, node: UUID, jobs: Sequence[Returned], connection: Connection = None
    ) -> int:
        jobs = _in_order(jobs)
        ids, tokens = [job.id for job in jobs], [job.token for job in jobs]
        return await self._count(connection, "give_back", node, ids, tokens)

    async def save_progress(
        self, node: UUID, ids: Sequence[UUID], tokens: Sequence[int], progress: Sequence[str]
    ) -> None:
        columns = columns_in_order(ids, tokens, progress)
        await self.database.fetch("save_progress", node, *columns)

    async def _count(self, connection: Connection, name: str, *arguments: Any) -> int:
        if connection is None:
            count: int = await self.database.fetchval(name, *arguments)
        else:
            count = await connection.fetchval(self.database.queries[name], *arguments)
        return count

    async def lanes(self, namespace: str) -> list[Any]:
        return await self.database.fetch("lanes", namespace)

    async def queue_maxima(self, namespace: str) -> dict[str, float]:
        """The maximum run times of queues that have one, in seconds."""
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


class UpkeepStore:
    """Releasing, reaping, and keeping the tables in shape."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.work = WorkStore(database)

    async def shards(self) -> int:
        async with self.database.connection() as connection:
            row = await connection.fetchrow(self.database.queries["open_bulk"])
            shards: int = row["shards"]
            return shards

    async def release(
        self, shards: Sequence[int], epochs: Sequence[int | None], limit: int
    ) -> tuple[int, list[int]]:
        """How many; and which of the shards are another's by now. No epoch: only what is overdue."""
        rows = await self.database.fetch("release", shards, epochs, limit)
        return rows[0][0], rows[0][1]

    async def forget_shard_moves(self) -> None:
        await self.database.fetch("forget_shard_moves")

    async def declare_dead(self) -> list[Any]:
        return await self.database.fetch("declare_dead")

    async def note_strays(self, after: UUID = NIL) -> tuple[int, UUID]:
        """How many batches were noted; and after which job the next look begins."""
        rows = await self.database.fetch("note_strays", after, _STRAYS_LOOKED_AT)
        return rows[0]["noted"], rows[0]["until"] or NIL

    async def make_days(self, ahead: int) -> int:
        """How many were made. One whose table is being read for long is made another time."""
        made = 0
        for row in await self.database.fetch("missing_days", ahead):
            # Each in a transaction of its own: its locks are short.
            try:
                made += await self.database.fetchval("make_partition", row["parent"], row["day"])
            except StoreUnavailable as error:
                if not isinstance(error.__cause__, asyncpg.LockNotAvailableError):
                    raise
        return made

    async def drop_old_days(
        self, retention_days: int, ledger_days: int, log_days: int
    ) -> list[str]:
        """The names of the days that are gone. One that is being read stays for another time."""
        past = await self.database.fetch("old_days", retention_days)
        ledger = await self.database.fetch("old_occurrence_days", ledger_days)
        logs = await self.database.fetch("old_log_days", log_days)
        await self.database.fetch("forget_occurrences", ledger_days)
        await self.database.fetch("forget_log_lines", log_days)
        await self.database.fetch("close_backfills")
        old = (*past, *ledger, *logs)
        return [row["name"] for row in old if await self._drop_day(row["name"], row["filled"])]

    async def _drop_day(self, name: str, filled: bool) -> bool:
        """Whether it is gone.

        Its rows go first, which locks nothing but the day itself. To drop the table locks its parent,
        and finishes queue up behind whoever waits for that: so it waits for a moment only, and when
        somebody reads for long (pg_dump) the day stays, empty, for another time.
        """
        table = f"{self.database.schema}.{name}"
        return (
            not filled or await self._within(_READERS_WAIT, f"truncate table {table}")
        ) and await self._within(_EVERYBODY_WAITS, f"drop table {table}")

    async def _within(self, wait: str, statement: str) -> bool:
        """Whether the statement got its locks in time."""
        async with self.database.connection() as connection:
            try:
                async with connection.transaction():
                    await connection.execute(f"set local lock_timeout = '{wait}'")
                    await connection.execute(statement)
            except (asyncpg.LockNotAvailableError, asyncpg.UndefinedTableError):
                return False
        return True

    async def forget_old(self, retention_days: int, dead_letter_days: int, limit: int) -> int:
        count: int = await self.database.fetchval(
            "forget_old", retention_days, dead_letter_days, limit
        )
        return count

    async def dead_rows(self) -> tuple[int, int]:
        rows = await self.database.fetch("dead_rows")
        return (rows[0][0], rows[0][1]) if rows else (0, 0)

    async def vacuum_present(self) -> None:
        """On a connection of its own: a large table takes longer than a statement may."""
        connection = await self.database.dedicated()
        try:
            with translated_errors(self.database.url):
                if not self.database.behind_pooler:  # there a setting would stay with others
                    await connection.execute(f"set statement_timeout = '{_VACUUM_SECONDS}s'")
                # TRUNCATE would take an exclusive lock for space that is needed again at once.
                await connection.execute(
                    f"vacuum (truncate off) {self.database.schema}.present",
                    timeout=_VACUUM_SECONDS + 5.0,
                )
        finally:
            await connection.close(timeout=5)
