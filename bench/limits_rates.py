"""Cases of `bench.limits` about what limits cost and how exact rates are."""

from __future__ import annotations

import asyncio
import bisect
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.ground import Arena, Ground
from bench.limits_ground import SLOTS, Figures, Place, Size, pairs, place, until
from bench.peers.catalogue import BY_NAME
from bench.workloads import drain, preload

BEFORE = "45c8156b"  # the last commit without limits
# Tables of limits, shares and unique jobs; and those that are looked into now and then: once for each
# bulk, and by a worker every two seconds.
_TABLES = [
    "allotment",
    "arrival",
    "fair_weight",
    "flow",
    "meter",
    "permit",
    "place",
    "sublane",
    "unique_key",
]
_OTHERS = ["depth", "new_lane", "pool"]


# -- what those pay who use none of it


class Unlimited:
    """No-ops of this tree and of the one before limits, in turns."""

    def __init__(self, ground: Ground, before: Path | None) -> None:
        self._ground = ground
        self._arenas = {"after": Arena(BY_NAME["rota"], ground, label="limits-after")}
        if before is not None:
            path = {"PYTHONPATH": str(before / "src")}
            self._arenas["before"] = Arena(
                BY_NAME["rota"], ground, label="limits-before", extra=path
            )
        for arena in self._arenas.values():
            arena.prepare()

    def measure(self, size: Size, turn: int) -> Figures:
        found: dict[str, Figures] = {}
        arenas = list(self._arenas.items())
        for name, arena in arenas[::-1] if turn % 2 else arenas:
            found[name] = self._one(arena, size)
        after = found["after"]
        figures = {"rate": after["rate"], "cpu_us": after["cpu_us"], "wal": after["wal"],
                   "reads": after["reads"], "other_reads": after["other_reads"]}  # fmt: skip
        if before := found.get("before"):
            figures |= {
                "rate_ratio": after["rate"] / before["rate"],
                "cpu_ratio": after["cpu_us"] / before["cpu_us"],
                "wal_ratio": after["wal"] / before["wal"],
            }
        return figures

    def _one(self, arena: Arena, size: Size) -> Figures:
        arena.refresh()
        began = self._ground.sql("select pg_current_wal_lsn()::text")
        preload(arena, "noop", size.plain_jobs)
        # Without a scheduler, which looks into all tables now and then.
        stats = drain(arena, size.plain_jobs, patience=60, task="noop", roles=["worker"])
        ended = f"select pg_wal_lsn_diff(pg_current_wal_lsn(), '{began}')::float8"
        thousands = stats["jobs"] / 1_000
        return {
            "rate": stats["rate"], "cpu_us": stats["store_cpu_us"] + stats["worker_cpu_us"],
            "wal": self._ground.sql(ended) / stats["jobs"],
            "reads": self._reads(arena, _TABLES) / thousands,
            "other_reads": self._reads(arena, _OTHERS) / thousands,
        }  # fmt: skip

    def _reads(self, arena: Arena, tables: list[str]) -> int:
        names = ", ".join(f"'{name}'" for name in tables)
        query = (
            "select coalesce(sum(coalesce(seq_scan, 0) + coalesce(idx_scan, 0)), 0)::int from"
            f" pg_stat_user_tables where schemaname = 'rota' and relname in ({names})"
        )
        return int(self._ground.sql(query, database=arena.database))


# -- a limit that is not in the way


class _Work:
    """No-ops in a queue that has a limit or none, from the moment it is resumed to the last outcome."""

    def __init__(self, made: Place) -> None:
        self._place, self._app = made, made.app

        @self._app.task
        async def noop() -> None: ...

        self._noop = noop

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        await self._app.migrate()
        await self._noop.submit()
        async with self._place.node():
            await self._place.until_empty()
            yield

    async def measure(self, jobs: int, limit: int | None) -> tuple[float, float]:
        """Return the rate, and the microseconds of processor time a job."""
        ground, app = self._place.ground, self._app
        await app.queues.set_limits("default", concurrency=limit)
        await app.queues.pause("default")
        for start in range(0, jobs, 10_000):
            await self._noop.submit_many([()] * min(10_000, jobs - start))
        await self._place.value("analyze rota.present")
        used = ground.server_cpu() + time.process_time()
        began = time.monotonic()
        await app.queues.resume("default")
        await self._place.until_empty()
        took = time.monotonic() - began
        return jobs / took, (ground.server_cpu() + time.process_time() - used) / jobs * 1e6


async def forty(ground: Ground, size: Size) -> Figures:
    """A limit of 40 on 40 slots against none, on a node that is warm, batch by batch in turns."""
    rates: dict[int | None, list[float]] = {None: [], SLOTS: []}
    costs: dict[int | None, list[float]] = {None: [], SLOTS: []}
    async with place(ground, "forty", concurrency=SLOTS) as made:
        work = _Work(made)
        async with work.running():
            for number in range(size.batches + 1):
                order: list[int | None] = [None, SLOTS]
                for limit in order[::-1] if number % 2 else order:
                    rate, cost = await work.measure(size.batch, limit)
                    if number:  # the first warms up
                        rates[limit].append(rate)
                        costs[limit].append(cost)
    return {
        "rate": statistics.median(rates[SLOTS]), "no_limit": statistics.median(rates[None]),
        "ratio": statistics.median(pairs(rates[None], rates[SLOTS])),
        "cpu_ratio": statistics.median(pairs(costs[None], costs[SLOTS])),
    }  # fmt: skip


# -- rates


class _Starts:
    def __init__(self, app: Any) -> None:
        self.at: list[float] = []

        @app.task
        async def noop() -> None:
            self.at.append(time.monotonic())

        self.noop = noop


_GRANTS = """
    create table bench_grant (at timestamptz);
    create function bench_grant() returns trigger language plpgsql as
        $$ begin insert into bench_grant values (clock_timestamp()); return null; end $$;
    create trigger bench_grant after update of token on rota.present
        for each row when (new.token is not null) execute function bench_grant();
"""


async def windows(ground: Ground, size: Size) -> Figures:
    """Starts under a rate with two nodes and a backlog: the most in any window, as the database granted
    them and as the handlers began, which on a busy machine is later."""
    a_second, burst = 200, 20
    async with place(ground, "windows", concurrency=SLOTS) as made:
        starts = _Starts(made.app)
        await made.app.migrate()
        await made.app.queues.set_limits("default", rate=f"{a_second}/s", rate_burst=burst)
        async with made.connection() as c:
            await c.execute(_GRANTS)
        await starts.noop.submit_many([()] * int(a_second * (size.rate_seconds + 10)))
        async with made.node(), made.node():
            await until(lambda: bool(starts.at))
            await asyncio.sleep(size.rate_seconds)
        async with made.connection() as c:
            rows = await c.fetch(
                "select extract(epoch from at)::float8 as at from bench_grant order by 1"
            )

    def over(at: list[float]) -> float:
        spans = (0.1, 0.5, 1, 2, 5)
        return max(0.0, *(most_in(at, span) - (a_second * span + burst) for span in spans))

    at = sorted(starts.at)
    return {
        "over": over([row["at"] for row in rows]), "started_over": over(at), "starts": len(at),
        "reached": (len(at) - burst) / (at[-1] - at[0]) / a_second,
    }  # fmt: skip


def most_in(at: list[float], seconds: float) -> int:
    """The most moments in any window of so many seconds."""
    return max(bisect.bisect_left(at, one + seconds) - number for number, one in enumerate(at))


async def meter(ground: Ground, size: Size) -> Figures:
    """Writes of a rate's meter for each start, at a thousand starts a second."""
    a_second, seconds = 1_000, size.rate_seconds
    query = "select n_tup_upd from pg_stat_user_tables where relname = 'meter'"
    async with place(ground, "meter", concurrency=SLOTS) as made:
        starts = _Starts(made.app)
        await made.app.migrate()
        await made.app.queues.set_limits("default", rate=f"{a_second}/s")
        jobs = int(a_second * (seconds + 4))
        for start in range(0, jobs, 10_000):
            await starts.noop.submit_many([()] * min(10_000, jobs - start))
        async with made.node():
            await until(lambda: bool(starts.at))
            await asyncio.sleep(seconds)
        await asyncio.sleep(1.5)  # its statistics are written when its connections close
        writes = await made.value(query)
    reached = len(starts.at) / (starts.at[-1] - starts.at[0]) / a_second
    return {"writes": writes / len(starts.at), "reached": reached}
