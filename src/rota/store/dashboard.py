"""Reads of the dashboard: fast however much is stored, with estimates marked as such.

Protocol. Reads only, under row security. Tables that can be large are read by an index up to a limit, or
in samples; a number that wasn't counted to its end is a `Count` that isn't exact. The history has no
index by time (it would cost every job something). But it is only ever appended to: the last pages of a
day are its last minutes, and are read in full; older minutes are estimated from random pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from rota.errors import StoreUnavailable
from rota.model import Count, DeadGroup
from rota.store.dashboard_lists import DashboardLists
from rota.store.estimates import estimated_rows, estimated_rows_of_each

_HELD = 100  # jobs of a lane that are read one by one
_READY = 1_000  # ready jobs that are counted one by one
_NAMES = 100  # tasks and queues to choose from in a form
_COUNTED = 3_000  # jobs of the future that are counted one by one
_TAIL_PAGES = 200
_SAMPLED_PAGES = 300
_SHARDS_SAMPLED = 8
_FEW_PER_SHARD = 12
_MANY_PER_SHARD = 250
_MINUTE = timedelta(minutes=1)
_LEDGER_MS = 500
_MOST_FAILED = 2_000
_MOST_GROUPS = 200


class QueueNow(msgspec.Struct, kw_only=True):
    """The state of a queue. `scheduled` is the planner's estimate if there are many."""

    name: str
    paused_at: datetime | None
    ready: Count = Count(0, True)
    running: Count = Count(0, True)
    scheduled: Count = Count(0, True)
    lag: float | None = None  # seconds that the oldest ready job has been due
    max_run_time: float | None  # seconds, of jobs without a timeout; None: the installation's
    max_depth: int | None = None  # jobs that have not ended, from which on submits are refused
    depth: int | None = None  # how many there are; None: they are not counted
    is_full: bool | None = None  # submits are refused

    @property
    def exact(self) -> bool:
        return self.ready.exact and self.running.exact


class NodeTotals(msgspec.Struct, frozen=True):
    """Nodes that are alive, what runs on them, and their slots."""

    nodes: int
    running: int
    slots: int


class NodeNow(msgspec.Struct, frozen=True):
    id: UUID
    name: str
    roles: list[str]
    state: str
    heartbeat_age: float


class FinishedMinute(msgspec.Struct, frozen=True):
    """Jobs that succeeded within a minute, and the 95th percentile of how late they started."""

    minute: datetime
    queue: str
    jobs: float
    lag: float | None
    exact: bool


class Dead(msgspec.Struct, frozen=True):
    """Dead letters in groups. `whole` is false when only the newest were read."""

    groups: Sequence[DeadGroup]
    looked_at: int
    whole: bool


class Match(msgspec.Struct, frozen=True):
    """A place where the text of a search was found: a piece of it, with the match inside."""

    place: str
    piece: str
    before: int
    length: int

    @property
    def parts(self) -> tuple[str, str, str]:
        end = self.before + self.length
        return self.piece[: self.before], self.piece[self.before : end], self.piece[end:][:80]


class Coming(msgspec.Struct, frozen=True):
    """Delayed jobs of the coming minutes."""

    by_minute: dict[datetime, int]
    exact: bool


class LedgerCounts(msgspec.Struct, frozen=True):
    """The newest occurrences of a schedule, counted by their outcomes."""

    fired: int
    backfilled: int
    triggered: int
    skipped: int

    @property
    def all(self) -> int:
        return self.fired + self.skipped


class DashboardStore(DashboardLists):
    # -- queues

    async def queues(
        self, *, after: str = "", most: int = 1000, names: Sequence[str] | None = None
    ) -> list[QueueNow]:
        """Return queues by name, after one, or some of them."""
        rows = await self._fetch("queue_names", after, most, names)
        found = {row["name"]: QueueNow(**row) for row in rows}
        scheduled = await self._scheduled()
        lanes = await self._fetch("lanes_now", _HELD, [*found])
        crowded = [
            row["lane"] for row in lanes if row["held"] >= _HELD and not row["lane"].endswith("#")
        ]
        ready = await self._guesses("lane_in_present", crowded)
        waiting: dict[str, int] = {}
        if scheduled is None:
            waiting = await self._guesses("lane_in_future", [row["lane"] for row in lanes])
        for row in lanes:
            queue, lane = found[row["queue"]], row["lane"]
            whole = row["held"] < _HELD
            held = max(ready.get(lane, 0), row["held"])
            queue.running = _sum(queue.running, row["running"], whole)
            queue.ready = _sum(queue.ready, held - row["running"], whole)
            count = waiting.get(lane, 0) if scheduled is None else scheduled.get(lane, 0)
            queue.scheduled = _sum(queue.scheduled, count, scheduled is not None)
            if row["lag"] is not None:
                queue.lag = max(queue.lag or 0.0, row["lag"])
        return [*found.values()]

    async def lags(self) -> dict[str, float]:
        """Return for how many seconds the first ready job of queues has been due: of all of them, or of
        the latest if there are many."""
        return dict(await self._fetch("lags_now"))

    async def troubled_queues(self, late: float, most: int) -> tuple[list[QueueNow], int]:
        """Return the queues that are paused, and those that are late by so many seconds, the latest
        first, `most` of either; and how many more are late."""
        paused = [row["name"] for row in await self._fetch("paused_queues", most)]
        lags = await self.lags()
        behind = sorted((name for name in lags if lags[name] > late), key=lambda name: -lags[name])
        behind = [name for name in behind if name not in paused]
        names = [*paused, *behind[:most]]
        found = await self.queues(names=names) if names else []
        found.sort(key=lambda queue: names.index(queue.name))
        return found, max(len(behind) - most, 0)

    async def ready(self) -> Count:
        """Count the ready jobs of all queues, or guess if they are many."""
        count: int = await self.database.fetchval("some_ready", self._namespace, _READY + 1)
        if count <= _READY:
            return Count(count, exact=True)
        return Count(max(await self._guess("whole_ready", self._namespace), count), exact=False)

    async def _scheduled(self) -> dict[str, int] | None:
        """Count scheduled jobs by lane; None: there are too many."""
        if await self._guess("whole_future") > _COUNTED:
            return None
        return dict(await self._fetch("future_by_lane"))

    async def _guess(self, query: str, *arguments: Any) -> int:
        return await estimated_rows(self.database, self.database.queries[query], *arguments)

    async def _guesses(self, query: str, lanes: Sequence[str]) -> dict[str, int]:
        """Return how many rows the planner expects of each lane."""
        return await estimated_rows_of_each(self.database, query, lanes)

    # -- history

    async def finished(self, since: datetime, now: datetime) -> list[FinishedMinute]:
        """Return the finished jobs by minute and queue."""
        midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        stretches = [(max(since, midnight), now + _MINUTE)]
        if since < midnight:
            stretches.append((since, midnight))
        found: list[FinishedMinute] = []
        for first, end in stretches:
            found += await self._finished_on_a_day(first, end)
        return found

    async def _finished_on_a_day(self, first: datetime, end: datetime) -> list[FinishedMinute]:
        pages: int = await self.database.fetchval("day_pages", first)
        begin = max(pages - _TAIL_PAGES, 0)
        tail = await self._fetch("finished_tail", f"({begin},0)", first, end)
        reached = min((row["oldest"] for row in tail), default=end)
        found = [_to_minute(row, 1.0) for row in tail if not begin or row["minute"] >= reached]
        if begin and reached > first:
            share = min(_SAMPLED_PAGES / pages, 1.0)
            # Up to the first minute that the tail has the whole of.
            until = reached.replace(second=0, microsecond=0) + _MINUTE
            rows = await self._fetch("finished_sample", first, until, share * 100)
            found += [_to_minute(row, share) for row in rows]
        return found

    async def slowest(self, task: str, now: datetime, most: int) -> list[Any]:
        """Return the slowest runs of a task among those on the last pages of the day."""
        first = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        return await self._fetch("slowest_runs", task, first, await self._tail(first), most)

    async def ended_on(self, node: UUID, since: datetime, most: int) -> list[Any]:
        """Return what a node has ended since, as far as the last pages of the day reach."""
        rows = await self._fetch("ended_on", node, since, await self._tail(since), most)
        return rows + await self._fetch("failed_on", node, since, most)

    async def _tail(self, at: datetime) -> str:
        pages: int = await self.database.fetchval("day_pages", at)
        return f"({max(pages - _TAIL_PAGES, 0)},0)"

    async def failures(self, since: datetime) -> tuple[int, datetime | None]:
        """Return how many jobs have failed since, 20,000 at most, and when the latest did."""
        row = (await self._fetch("failures_since", since))[0]
        return row["jobs"], row["latest"]

    async def events(self, since: datetime) -> list[Any]:
        return await self._fetch("events_lately", since)

    async def dead_groups(self, task: str | None = None, newest: int = 1_500) -> Dead:
        groups = await self._all(DeadGroup, "newest_dead_groups", self._namespace, newest, task)
        found = sum(group.count for group in groups)
        if await self.database.fetchval("more_dead", self._namespace, newest):
            return Dead(groups, newest, whole=False)
        return Dead(groups, found, whole=len(groups) < _MOST_GROUPS)

    async def recent_dead(self, limit: int) -> list[Any]:
        return await self._fetch("recent_dead", limit)

    # -- coming jobs

    async def coming_jobs(self, now: datetime, until: datetime, shards: int) -> Coming:
        rows = await self._fetch("coming_jobs", now, until, shards, _FEW_PER_SHARD)
        if all(row["most"] < _FEW_PER_SHARD for row in rows):
            return Coming({row["minute"]: row["jobs"] for row in rows}, exact=True)
        rows = await self._fetch(
            "coming_jobs", now, until, min(shards, _SHARDS_SAMPLED), _MANY_PER_SHARD
        )
        times = max(shards / _SHARDS_SAMPLED, 1.0)
        return Coming({row["minute"]: round(row["jobs"] * times) for row in rows}, exact=False)

    # -- schedules

    async def strips(self, ids: Sequence[UUID], length: int) -> dict[UUID, list[Any]]:
        found: dict[UUID, list[Any]] = {id: [] for id in ids}
        for row in await self._fetch("strips", list(ids), length):
            found[row["schedule_id"]].append(row)
        return found

    async def schedule_of(self, job_id: UUID) -> Any:
        rows = await self._fetch("schedule_of_job", job_id)
        return rows[0] if rows else None

    async def has_started(self, job_id: UUID) -> bool:
        """Return whether it is recorded when a running job started, and not only when it was claimed."""
        return bool(await self.database.fetchval("has_started", self._namespace, job_id))

    async def ledger_counts(self, id: UUID, most: int) -> LedgerCounts:
        """Count the newest occurrences of a schedule by what became of them."""
        return await self._one(LedgerCounts, "ledger_counts", id, most)

    async def ledger_between(self, first: datetime, end: datetime, most: int) -> list[Any] | None:
        """Count the decided occurrences of a stretch of time by quarter of an hour, schedule and state,
        of the `most` that were decided last. None: that takes too long to read."""
        try:
            async with self.database.transaction("search") as connection:
                # With much memory, row security would hash all schedules for each day of the ledger;
                # with little, it looks up those of the newest occurrences.
                await connection.execute(
                    f"set local statement_timeout = {_LEDGER_MS:d}; set local work_mem = '64kB'"
                )
                return await self.database.fetch(
                    "ledger_between", self._namespace, first, end, most, on=connection
                )
        except StoreUnavailable as error:
            if isinstance(error.__cause__, asyncpg.QueryCanceledError):
                return None
            raise

    async def ledger_of_day(
        self, first: datetime, end: datetime, names: Sequence[str], most: int
    ) -> list[Any]:
        """Return the decided occurrences of some schedules that have few."""
        return await self._fetch("ledger_of_day", first, end, list(names), most)

    async def failed_occurrences(self, first: datetime, end: datetime) -> list[datetime]:
        """Return when those jobs of schedules were due that have failed."""
        return await self._all(
            datetime, "failed_occurrences", self._namespace, first, end, _MOST_FAILED
        )

    async def job_states(self, ids: Sequence[UUID]) -> dict[UUID, int]:
        """Return the states of jobs, by id. Those whose retention is over are missing."""
        return dict(await self._fetch("job_states", list(ids)))

    async def schedule_count(self, most: int) -> int:
        """Count the schedules, up to `most`."""
        return await self._one(int, "schedule_count", self._namespace, most)

    async def stored_spec(self, id: UUID) -> Any:
        """Return what is stored of a schedule, also if this release can't read it."""
        rows = await self._fetch("stored_spec", id)
        return msgspec.json.decode(rows[0]["spec"]) if rows else None

    async def set_aside(self) -> list[str]:
        """Return the names of schedules that some node can't plan."""
        return await self._all(str, "set_aside", self._namespace)

    async def node_totals(self) -> NodeTotals:
        return await self._one(NodeTotals, "node_totals", self._namespace)

    async def troubled_nodes(self, seconds: float) -> list[NodeNow]:
        """Return the nodes that died or went silent lately, and a worker that is alive."""
        return await self._all(NodeNow, "troubled_nodes", self._namespace, seconds)

    async def node_names(self, ids: Sequence[UUID]) -> dict[UUID, str]:
        """Return the names of nodes. Those that are forgotten are missing."""
        return dict(await self._fetch("node_names", list(ids))) if ids else {}

    async def node_release(self, node: str) -> tuple[str | None, str | None]:
        """Return the name of a node and the release that it runs; None: it is not known any more."""
        rows = await self._fetch("node_release", node) if node else []
        return (rows[0]["name"], rows[0]["release"]) if rows else (None, None)

    async def matches(
        self, ids: Sequence[UUID], text: str, compact: str | None
    ) -> dict[UUID, Match]:
        """Return where a text is found in jobs: a piece around the first place."""
        rows = await self._fetch("job_matches", list(ids), text, compact)
        return {
            row["id"]: Match(row["place"], row["piece"], row["before"], row["length"])
            for row in rows if "$rota-encrypted" not in row["piece"]
        }  # fmt: skip

    async def queue_names(self, most: int = _NAMES) -> list[str]:
        return [row["name"] for row in await self._fetch("queue_names", "", most, None)]

    async def tasks(self, most: int = _NAMES) -> list[str]:
        return await self._all(str, "known_tasks", self._namespace, most)


def _sum(count: Count, more: int, exact: bool) -> Count:
    return Count(count.value + max(more, 0), count.exact and (exact or more == 0))


def _to_minute(row: Any, share: float) -> FinishedMinute:
    return FinishedMinute(
        row["minute"], row["queue"], row["jobs"] / share, row["lag"], exact=share >= 1.0
    )
