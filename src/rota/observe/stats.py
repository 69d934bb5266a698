"""Reads the state of the cluster from the database, for metrics.

Protocol. A scrape gets stats that are at most a few seconds old; of many scrapes at once, one queries
the database. A query that takes long delays the next: at most a twentieth of the time is spent on it.
Occurrences and events are counted from this process's first query on, each time from where the last one
ended. When the database is unavailable the last stats stay, with their age, and `up` is false.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from time import monotonic
from typing import Any, TypeAlias

from rota.errors import RotaError
from rota.observe.counters import OTHER
from rota.store.database import Database
from rota.store.queue_counts import QueueCounts, QueueCountStore

log = logging.getLogger("rota.metrics")

_AT_MOST_EVERY = 5.0
_SHARE = 20  # one part in so many of the time
_MOST_LABELS = 200

Values: TypeAlias = Mapping[tuple[str, ...], float]


class Stats:
    """The last answers, by name. Keys are the values of their labels, the namespace first."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._asking = asyncio.Lock()
        self._again_at = 0.0
        self._counted_to: datetime | None = None
        self.looked_at: float | None = None  # monotonic
        self.looks = 0
        self.seconds = 0.0  # that the last query took
        self.up = False
        self.jobs: Values = {}
        self.lag: Values = {}
        self.dead: Values = {}
        self.set_aside: Values = {}
        self.runs: Values = {}
        self.ended_runs: Counter[tuple[str, ...]] = Counter()
        self.depth: Values = {}
        self.max_depth: Values = {}
        self.full: Values = {}
        self.limit_max: Values = {}
        self.limit_running: Values = {}
        self.limit_waiting: Values = {}
        self.pool_slots: Values = {}
        self.pool_needed: Values = {}
        self.nodes: list[Any] = []
        self.shards: Any = None
        self.occurrences: Counter[tuple[str, ...]] = Counter()
        self.events: Counter[tuple[str, ...]] = Counter()

    async def refresh(self) -> None:
        """Query the database, unless that was just done."""
        async with self._asking:
            began = monotonic()
            if began < self._again_at:
                return
            try:
                await self._look()
                self.up, self.looked_at = True, monotonic()
            except RotaError as error:
                self.up = False
                log.warning("can't read the stats of the cluster, the last ones stay: %s", error)
            self.looks += 1
            self.seconds = monotonic() - began
            self._again_at = began + max(_AT_MOST_EVERY, _SHARE * self.seconds)

    async def _look(self) -> None:
        fetch = self._database.fetch
        counts = QueueCountStore(self._database)
        self.jobs, self.lag = _by_queue(await counts.read())
        self.dead = _folded(await counts.dead_by_task(), "task", "jobs")
        self.set_aside = {
            (row["namespace"],): row["schedules"] for row in await fetch("count_set_aside")
        }
        self.runs = _folded(await fetch("count_runs"), "workflow", "runs", "state")
        rows = await fetch("list_depths", None)
        self.depth = {(row["namespace"], row["queue"]): row["jobs"] for row in rows}
        limited = [row for row in rows if row["max_depth"] is not None]
        self.max_depth = {(row["namespace"], row["queue"]): row["max_depth"] for row in limited}
        self.full = {(row["namespace"], row["queue"]): row["is_full"] for row in limited}
        rows = await fetch("count_limits")
        places = [row for row in rows if not row["is_rate"]]
        self.limit_max = _largest(places, "limit", "most")
        self.limit_running = _folded(places, "limit", "running")
        self.limit_waiting = _folded(rows, "limit", "waiting")
        rows = await fetch("list_pools", None, None)
        self.pool_slots = {(row["namespace"], row["name"]): row["slots"] for row in rows}
        self.pool_needed = {(row["namespace"], row["name"]): row["needed"] for row in rows}
        self.nodes = await fetch("count_nodes")
        (self.shards,) = await fetch("count_shards")
        until: datetime = await self._database.fetchval("settled_moment")
        since, self._counted_to = self._counted_to, until
        if since is not None and since < until:
            rows = await fetch("count_occurrences", since, until)
            self.occurrences.update(_folded(rows, "outcome", "occurrences"))
            rows = await fetch("count_ended_runs", since, until)
            self.ended_runs.update(_folded(rows, "workflow", "runs", "outcome"))
            rows = await fetch("count_events", since, until)
            self.events.update(_folded(rows, "kind", "events"))


def _by_queue(counts: QueueCounts) -> tuple[Values, Values]:
    """Return the numbers of jobs by queue and state, and how late queues are."""
    rows = [{"namespace": namespace, "queue": queue} for namespace, queue in counts]
    queues = _kept_keys(rows, "queue")
    jobs: Counter[tuple[str, ...]] = Counter()
    lag: dict[tuple[str, ...], float] = {}
    for row, count in zip(rows, counts.values(), strict=True):
        key = _key(queues, row, "queue")
        for state in ("waiting", "scheduled", "ready", "running"):
            if number := getattr(count, state):
                jobs[*key, state] += number
        if count.lag is not None:
            lag[key] = max(lag.get(key, 0.0), count.lag)
    return jobs, lag


def _kept_keys(rows: list[Any], label: str) -> set[tuple[str, str]]:
    distinct = sorted({(row["namespace"], row[label]) for row in rows})
    return set(distinct[:_MOST_LABELS])


def _key(kept: set[tuple[str, str]], row: Any, label: str) -> tuple[str, str]:
    key = (row["namespace"], row[label])
    return key if key in kept else (key[0], OTHER)


def _largest(rows: list[Any], label: str, value: str) -> dict[tuple[str, ...], float]:
    """Return values that make no sense when they are added up; without those beyond the bound."""
    kept = _kept_keys(rows, label)
    keyed = {(row["namespace"], row[label]): row[value] for row in rows}
    return {key: value for key, value in keyed.items() if key in kept and value is not None}


def _folded(rows: list[Any], label: str, value: str, *more_labels: str) -> Counter[tuple[str, ...]]:
    kept = _kept_keys(rows, label)
    folded: Counter[tuple[str, ...]] = Counter()
    for row in rows:
        folded[*_key(kept, row, label), *(row[each] for each in more_labels)] += row[value]
    return folded
