"""Cases of `bench.limits` about size: claims under an old snapshot, and submits into a deep queue."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from bench import quotas
from bench.ground import Ground
from bench.limits_ground import SLOTS, Figures, Place, Size, place

_CLAIMS = """
    select sum(calls)::float8 as calls, sum(rows)::float8 as rows,
           sum(shared_blks_hit + shared_blks_read)::float8 as blocks
    from pg_stat_statements
    where toplevel and query like any(array['%rota.claim_shared(%', '%for update skip locked%node = %'])
"""
_KINDS = ("none", "queue", "keys")


class _Queue:
    """Jobs without a limit, under one of their queue, or under one of their keys."""

    def __init__(self, made: Place) -> None:
        self.place = made

        @made.app.task
        async def noop() -> None: ...

        self._noop = noop

    async def measure(self, kind: str, jobs: int) -> float:
        """Return the buffers that a claim reads for each of its jobs."""
        app = self.place.app
        await app.queues.set_limits(
            "default",
            concurrency=SLOTS if kind == "queue" else None,
            concurrency_per_key=SLOTS if kind == "keys" else None,
        )
        await app.queues.pause("default")
        for start in range(0, jobs, 1_000):
            task = self._noop
            if kind == "keys":
                task = task.options(concurrency_key=str(start // 1_000 % 20))
            await task.submit_many([()] * min(1_000, jobs - start))
        await self.place.value("select pg_stat_statements_reset()::text")
        await app.queues.resume("default")
        await self.place.until_empty()
        async with self.place.connection() as c:
            row = await c.fetchrow(_CLAIMS)
        return float(row["blocks"] / jobs)


@contextlib.asynccontextmanager
async def _old_snapshot(made: Place) -> AsyncIterator[None]:
    """Hold a snapshot, so that vacuum removes nothing of what ends inside."""
    async with made.connection() as c, c.transaction(isolation="repeatable_read"):
        await c.fetchval("select count(*) from rota.present")
        yield


async def snapshot(ground: Ground, size: Size) -> Figures:
    """Buffers per claimed job after so many jobs have ended under an old snapshot, against before."""
    sample = 5_000 if size.quick else 20_000
    figures: dict[str, Any] = {}
    async with place(ground, "snapshot", concurrency=SLOTS) as made:
        queue = _Queue(made)
        await made.app.migrate()
        await made.value("create extension if not exists pg_stat_statements")
        async with made.node("worker", "scheduler"):
            fresh, aged = {}, {}
            for kind in _KINDS:
                await queue.measure(kind, sample)  # warms up
                # What is new counts what ran before it, again and again for ten seconds.
                await asyncio.sleep(11 if kind != "none" else 0)
                await made.value("vacuum rota.present")
                fresh[kind] = await queue.measure(kind, sample)
            async with _old_snapshot(made):
                for kind in _KINDS:
                    jobs = size.old_jobs // (20 if kind == "keys" else 2)
                    await queue.measure(kind, jobs)
                    await asyncio.sleep(1.5)
                    aged[kind] = await queue.measure(kind, sample)
    for kind in _KINDS:
        figures[kind] = aged[kind] / fresh[kind]
        figures[f"{kind}_blocks"] = fresh[kind]
    return {"ratio": max(figures[kind] for kind in _KINDS), **figures}


async def depth(ground: Ground, size: Size) -> Figures:
    """Submits into a limited queue with so many jobs against one with a thousand."""
    async with place(ground, "depth") as made:
        found = await quotas.measure(made.url, size.deep_queue, size.turns)
    return {
        "alone": found["alone: deep against shallow"],
        "bulk": found["bulk: deep against shallow"],
        "limit_alone": found["alone: shallow against unlimited"],
        "limit_bulk": found["bulk: shallow against unlimited"],
    }
