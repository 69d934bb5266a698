"""Reads the state of the cluster from the database, for metrics.

Protocol. A scrape gets stats that are at most a few seconds old; of many scrapes at once, one queries
the database. A query that takes long delays the next: at most a twentieth of the time is spent on it.
Occurrences and events are counted from this process's first query on, each time from where the last one
ended. When the database is away the last stats stay, with their age, and `up` says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from datetime import datetime
from time import monotonic
from typing import Any

from rota.errors import RotaError
from rota.observe.counters import OTHER
from rota.store.stats import StatsStore

log = logging.getLogger("rota.metrics")

_AT_MOST_EVERY = 5.0
_SHARE = 20  # one part in so many of the time
_MOST_LABELS = 200


class Stats:
    """The last answers, by name. Keys are the values of their labels, the namespace first."""

    def __init__(self, store: StatsStore) -> None:
        self._store = store
        self._asking = asyncio.Lock()
        self._again_at = 0.0
        self._counted_to: datetime | None = None
        self.looked_at: float | None = None  # monotonic
        self.looks = 0
        self.seconds = 0.0  # that the last query took
        self.up = False
        self.jobs: dict[tuple[str, ...], float] = {}
        self.lag: dict[tuple[str, ...], float] = {}
        self.dead: dict[tuple[str, ...], float] = {}
        self.set_aside: dict[tuple[str, ...], float] = {}
        self.nodes: list[Any] = []
        self.shards: Any = None
        self.occurrences: Counter[tuple[str, ...]] = Counter()
        self.events: Counter[tuple[str, ...]] = Counter()

    async def refresh(self) -> None:
        """Ask the database, unless it has just been asked."""
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
        store = self._store
        rows = await store.count_by_queue()
        queues = _kept_keys([(row["namespace"], row["queue"]) for row in rows])
        jobs: Counter[tuple[str, ...]] = Counter()
        lag: dict[tuple[str, ...], float] = {}
        for row in rows:
            namespace, queue = _key(queues, (row["namespace"], row["queue"]))
            jobs[namespace, queue, row["state"]] += row["jobs"]
            if row["lag"] is not None:
                lag[namespace, queue] = max(lag.get((namespace, queue), 0.0), row["lag"])
        self.jobs, self.lag = dict(jobs), lag
        self.dead = dict(_folded(await store.count_dead_by_task(), "task", "jobs"))
        self.set_aside = {
            (row["namespace"],): row["schedules"] for row in await store.count_set_aside()
        }
        self.nodes = await store.count_nodes()
        self.shards = await store.count_shards()
        await self._count_on()

    async def _count_on(self) -> None:
        until = await self._store.settled_moment()
        since, self._counted_to = self._counted_to, until
        if since is not None and since < until:
            occurrences = await self._store.count_occurrences(since, until)
            self.occurrences.update(_folded(occurrences, "outcome", "occurrences"))
            self.events.update(
                _folded(await self._store.count_events(since, until), "kind", "events")
            )


def _kept_keys(keys: list[tuple[str, str]]) -> set[tuple[str, str]]:
    distinct = sorted(set(keys))
    return set(distinct if len(distinct) <= _MOST_LABELS else distinct[:_MOST_LABELS])


def _key(kept: set[tuple[str, str]], key: tuple[str, str]) -> tuple[str, str]:
    return key if key in kept else (key[0], OTHER)


def _folded(rows: list[Any], label: str, value: str) -> Counter[tuple[str, ...]]:
    kept = _kept_keys([(row["namespace"], row[label]) for row in rows])
    folded: Counter[tuple[str, ...]] = Counter()
    for row in rows:
        folded[_key(kept, (row["namespace"], row[label]))] += row[value]
    return folded
