"""pgqueuer: two processes on uvloop, each with a pool of asyncpg connections, 100 jobs a batch (its
default is 10), tables tuned by its own `optimize_autovacuum`. Durability as it comes: logged
tables. No limits on concurrency, because each costs in the dequeue statement; for 5 ms jobs the
most that run at once is set by `max_concurrent_tasks`. Its entrypoints must be coroutines; what is
plain runs by `asyncio.to_thread`, as its error message advises.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

import asyncpg
import common
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries


async def _queries() -> tuple[Any, Queries]:
    connection = await asyncpg.connect(common.DATABASE_URL)
    return connection, Queries(AsyncpgDriver(connection))


async def setup(wish: dict[str, Any]) -> dict[str, Any]:
    connection, queries = await _queries()
    await queries.install()
    await queries.optimize_autovacuum()
    await connection.close()
    return {"version": importlib.metadata.version("pgqueuer")}


def _payload(number: int) -> bytes:
    return str(number).encode()


async def submit(wish: dict[str, Any]) -> dict[str, Any]:
    connection, queries = await _queries()
    task = wish["task"]
    with common.Stopwatch() as watch:
        if wish["how"] == "single":
            for number in common.numbers(wish):
                await queries.enqueue(task, _payload(number))
        else:
            for due, numbers in common.batches(wish):
                count = len(numbers)
                # Relative to the database's now: what has passed since the batch began is taken off.
                after = timedelta(seconds=max(due - time.time(), 0)) if due is not None else None
                payloads: list[bytes | None] = [_payload(number) for number in numbers]
                delays = [after] * count if after is not None else None
                await queries.enqueue([task] * count, payloads, [0] * count, delays)
    await connection.close()
    return watch.answer()


async def trickle(wish: dict[str, Any]) -> None:
    connection, queries = await _queries()
    await common.at_a_pace(wish, lambda number: queries.enqueue("noop", _payload(number)))
    await connection.close()


def _register(queue: PgQueuer, wish: dict[str, Any]) -> None:
    hold_seconds = wish.get("hold", 0.0)

    if wish["task"] == "noop":

        @queue.entrypoint("noop")
        async def noop(job: Any) -> None:
            common.started(int(job.payload))

    elif wish["task"] == "plain":

        @queue.entrypoint("plain")
        async def plain(job: Any) -> None:
            await asyncio.to_thread(common.started, int(job.payload))

    else:

        @queue.entrypoint("hold")
        async def hold(job: Any) -> None:
            common.started(int(job.payload))
            await asyncio.sleep(hold_seconds)

    for number in range(wish.get("schedules", 0)):
        expression = "* * * * *" if wish["every"] == "minute" else "* * * * * *"
        _schedule(queue, number, expression)


def _schedule(queue: PgQueuer, number: int, expression: str) -> None:
    @queue.schedule(f"tick{number}", expression)
    async def tick(schedule: Any) -> None:
        common.started(number)


async def work(wish: dict[str, Any]) -> None:
    pool = await asyncpg.create_pool(common.DATABASE_URL, min_size=2, max_size=6)
    queue = PgQueuer.from_asyncpg_pool(pool)
    _register(queue, wish)
    slots = wish["slots"]
    bounded = wish["task"] == "hold"
    running = asyncio.create_task(
        queue.run(
            dequeue_timeout=timedelta(seconds=1),
            batch_size=max(slots // 2, 1) if bounded else 100,
            max_concurrent_tasks=slots if bounded else None,
            heartbeat_timeout=timedelta(seconds=15),
        )
    )
    told = asyncio.create_task(common.until_told())
    await asyncio.wait([running, told], return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
    queue.shutdown.set()
    await asyncio.wait([running], timeout=5)


if __name__ == "__main__":
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    common.main(setup=setup, submit=submit, trickle=trickle, work=work)
