"""What is measured. Each case gives numbers; `run.py` makes ratios and a table of them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any
from uuid import UUID

import psutil

from bench.app import app, noop, plain
from bench.support import connection, empty, left, node, submit, wait_alive
from rota.core.rank import rank_of
from rota.lib.ids import new_id, new_ids
from rota.store.work import LOWEST_RANK, NIL

CLAIM = 500


async def raw_claim_and_finish(count: int, batch: int = CLAIM) -> float:
    """Jobs a second of a bare loop: the same SQL, one connection, nothing run in between."""
    await empty()
    await submit(noop, count)
    database = await app.connector.open_database(hot=True)
    queries = database.queries
    me, rank, last, done = new_id(), LOWEST_RANK, NIL, 0
    async with database.connection() as c:
        began = time.perf_counter()
        while done < count:
            rows = await c.fetch(
                queries["claim"], me, ["default/default"], [rank], [last], [batch], ["noop"]
            )
            rank, last = rows[-1]["rank"], rows[-1]["id"]
            done += await _raw_finish(c, queries, me, rows)
        seconds = time.perf_counter() - began
    await database.close()
    return count / seconds


async def _raw_finish(c: Any, queries: dict[str, str], me: UUID, rows: list[Any]) -> int:
    size = len(rows)
    finished: int = await c.fetchval(
        queries["finish_succeeded"], me, [row["id"] for row in rows],
        [row["token"] for row in rows], [], [], [0.0] * size, [0.0] * size, None,
    )  # fmt: skip
    return finished


async def executed(task: Any, count: int, processes: int, *, hold: bool = False) -> float:
    """Jobs a second that workers execute, from the first that is gone to the last."""
    await empty()
    await submit(task, count)
    async with connection() as c, connection() as old:
        if hold:
            await old.execute("begin isolation level repeatable read; select 1")
        with contextlib.ExitStack() as nodes:
            for _ in range(processes):
                nodes.enter_context(node("worker"))
            await wait_alive(c, processes)
            began, first = time.perf_counter(), await left(c)
            while await left(c):
                await asyncio.sleep(0.05)
            return first / (time.perf_counter() - began)


async def sustained(seconds: float) -> dict[str, float]:
    """Submit and execute at full speed: the rate of each half, and the hot table's size."""
    await empty()
    async with connection() as c:
        with node("worker", "scheduler"):
            await wait_alive(c, 1)
            rates = [await _keep_busy(c, seconds / 2) for _ in range(2)]
            size = await c.fetchval("select pg_total_relation_size('rota.present')")
    return {"first": rates[0], "second": rates[1], "size_mb": size / 1e6}


async def _keep_busy(c: Any, seconds: float) -> float:
    began = time.perf_counter()
    before = await c.fetchval("select count(*) from rota.past")
    while time.perf_counter() - began < seconds:
        if await left(c) < 20_000:
            await noop.submit_many([()] * 10_000)
    done: int = await c.fetchval("select count(*) from rota.past") - before
    return done / (time.perf_counter() - began)


async def raw_copy(count: int) -> float:
    """Rows a second of bare COPYs into the same table."""
    await empty()
    columns = ["id", "rank", "due_at", "timeout", "priority", "guarantee", "max_attempts",
               "namespace", "lane", "task", "share", "payload", "headers"]  # fmt: skip
    async with connection() as c:
        began = time.perf_counter()
        for start in range(0, count, 10_000):
            now = await c.fetchval("select now()")
            rank = rank_of(now, 0)
            rows = [
                (
                    id,
                    rank,
                    now,
                    None,
                    0,
                    1,
                    5,
                    "default",
                    "default/default",
                    "noop",
                    None,
                    "{}",
                    None,
                )
                for id in new_ids(min(10_000, count - start))
            ]
            await c.copy_records_to_table(
                "present", schema_name="rota", columns=columns, records=rows
            )
        return count / (time.perf_counter() - began)


async def submitted(count: int) -> float:
    await empty()
    await submit(noop, 1)
    return count / await submit(noop, count)


async def pick_up(count: int, rate: float) -> list[float]:
    """Milliseconds from submit to start on an idle worker, sorted."""
    await empty()
    async with connection() as c:
        with node("worker"):
            await wait_alive(c, 1)
            for _ in range(count):
                await noop.submit()
                await asyncio.sleep(1 / rate)
            while await left(c):
                await asyncio.sleep(0.05)
            rows = await c.fetch(
                "select extract(epoch from started_at - created_at)::float8 * 1000 from rota.past"
            )
    return sorted(row[0] for row in rows)


async def bare_commits(count: int, rate: float) -> list[float]:
    """Milliseconds of two bare commits in a row, sorted: a submit and a claim can't do with less."""
    await empty()
    took: list[float] = []
    async with connection() as c:
        for _ in range(count):
            began = time.perf_counter()
            for _ in range(2):
                await c.execute("update rota.setting set value = value where name = 'horizon_ms'")
            took.append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(1 / rate)
    return sorted(took)


async def with_a_million_waiting(count: int, waiting: int) -> dict[str, float]:
    """The rate at which `count` of many ready jobs are executed, and the worker's memory."""
    await empty()
    await submit(noop, waiting)
    async with connection() as c:
        await c.execute("analyze rota.present")
        with node("worker") as process:
            await wait_alive(c, 1)
            began = time.perf_counter()
            while await c.fetchval("select count(*) from rota.past") < count:
                await asyncio.sleep(0.05)
            rate = count / (time.perf_counter() - began)
            memory = _memory(process)
            # Drained of the rest by hand: it isn't what is measured.
    return {"rate": rate, "memory_mb": memory}


def _memory(process: psutil.Process) -> float:
    size: float = process.memory_info().rss / 1e6
    return size


async def functions(count: int) -> float:
    return await executed(plain, count, 1)
