"""What limits cost: jobs a second with and without, writes, reads under an old snapshot, a full key.

python -m bench.limits [--jobs 20000] [--front 20000] [--rounds 3] [--rate 1000]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from bench.support import connection, database, empty
from rota import App, Node

_SLOTS = 40


class Starts:
    """The starts of jobs, by their number."""

    def __init__(self) -> None:
        self.at: dict[int, float] = {}


def make_app(url: str, starts: Starts) -> App:
    app = App(database_url=url, concurrency=_SLOTS, node_name="bench")

    @app.task
    async def noop(number: int) -> None:
        starts.at[number] = time.monotonic()

    @app.task
    async def slow(number: int) -> None:
        await asyncio.sleep(3600)

    return app


async def until(done: Callable[[], bool]) -> None:
    while not done():
        await asyncio.sleep(0.005)


async def count(query: str) -> int:
    async with connection() as c:
        return int(await c.fetchval(query) or 0)


async def rate(
    url: str, jobs: int, prepare: Callable[[App], Awaitable[Any]], **options: Any
) -> float:
    """Return the jobs a second of one node with 40 slots, until the last outcome is written."""
    starts = Starts()
    app = make_app(url, starts)
    await prepare(app)
    task = app.tasks["noop"]
    await task.options(**options).submit_many([(number,) for number in range(jobs)])
    node = Node(app, ["worker"])
    await node.start()
    began = time.monotonic()
    await until(lambda: len(starts.at) == jobs)
    while await count("select count(*) from rota.present"):
        await asyncio.sleep(0.005)
    took = time.monotonic() - began
    await node.stop()
    await app.queues.set_limits("default", concurrency=None, concurrency_per_key=None)
    await app.close()
    return jobs / took


async def delay(url: str, jobs: int, front: int) -> list[float]:
    """Return the seconds from submit to start of jobs of a key, with so many of a full key in front."""
    starts = Starts()
    app = make_app(url, starts)
    await app.queues.set_limits("default", concurrency_per_key=1)
    slow = app.tasks["slow"].options(concurrency_key="full")
    if front:
        await slow.submit_many([(number,) for number in range(front)])
    node = Node(app, ["worker"])
    await node.start()
    waits = []
    for number in range(jobs):
        began = time.monotonic()
        await app.tasks["noop"].options(concurrency_key="other").submit(number)
        await until(lambda number=number: number in starts.at)  # type: ignore[misc]
        waits.append(starts.at[number] - began)
    await node.stop()
    await app.queues.set_limits("default", concurrency=None, concurrency_per_key=None)
    await app.close()
    return sorted(waits)


async def meter_writes(url: str, a_second: int) -> tuple[float, float]:
    """Return the part of a rate that is reached, and the writes of its meter for each start."""
    starts = Starts()
    app = make_app(url, starts)
    await app.queues.set_limits("default", rate=f"{a_second}/s")
    node = Node(app, ["worker"])
    await node.start()
    await app.tasks["noop"].submit_many([(number,) for number in range(a_second * 8)])
    await until(lambda: len(starts.at) > a_second)
    query = "select n_tup_upd from pg_stat_user_tables where relname = 'meter'"
    before, first, began = await count(query), len(starts.at), time.monotonic()
    await asyncio.sleep(4)
    reached = (len(starts.at) - first) / (time.monotonic() - began) / a_second
    await node.stop()  # its statistics are written when its connections close
    await app.queues.set_limits("default", rate=None)
    await app.close()
    await asyncio.sleep(1)
    return reached, (await count(query) - before) / (len(starts.at) - first)


@contextlib.asynccontextmanager
async def old_snapshot() -> AsyncIterator[None]:
    """Hold a snapshot, so that vacuum removes nothing of what ends inside."""
    async with connection() as c, c.transaction(isolation="repeatable_read"):
        await c.fetchval("select count(*) from rota.present")
        yield


async def reads(url: str, jobs: int) -> float:
    """Return the blocks of `present` that a job costs under a queue's limit, for reading and writing."""
    query = (
        "select heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit"
        " from pg_statio_user_tables where relname = 'present'"
    )

    async def limit(app: App) -> None:
        await app.queues.set_limits("default", concurrency=_SLOTS)

    before = await count(query)
    await rate(url, jobs, limit)
    await asyncio.sleep(1)
    return (await count(query) - before) / jobs


async def measure(url: str, jobs: int, front: int, rounds: int, a_second: int) -> None:
    async def nothing(app: App) -> None: ...

    async def limit(app: App) -> None:
        await app.queues.set_limits("default", concurrency=_SLOTS)

    async def limit_key(app: App) -> None:
        await app.queues.set_limits("default", concurrency_per_key=_SLOTS)

    await make_app(url, Starts()).migrate()
    cases: list[tuple[str, Any, dict[str, Any]]] = [
        ("no limit", nothing, {}),
        (f"a queue's limit of {_SLOTS}", limit, {}),
        ("a key, no limit", nothing, {"concurrency_key": "a"}),
        (f"a key's limit of {_SLOTS}", limit_key, {"concurrency_key": "a"}),
    ]
    rates: dict[str, list[float]] = {name: [] for name, _, _ in cases}
    for _ in range(rounds):  # in turns: the machine is not always as fast
        for name, prepare, options in cases:
            await empty()
            rates[name].append(await rate(url, jobs, prepare, **options))
    for name, found in rates.items():
        ratio = statistics.median(
            one / base for one, base in zip(found, rates["no limit"], strict=True)
        )
        print(f"{name:28} {statistics.median(found):8,.0f} jobs/s   {ratio:.2f} of no limit")
    await empty()
    reached, writes = await meter_writes(url, a_second)
    print(f"{f'a rate of {a_second:,}/s':28} {reached:8.3f} of it, {writes:.3f} writes a start")
    await empty()
    fresh = await reads(url, jobs)
    async with old_snapshot():
        first, again = await reads(url, jobs), await reads(url, jobs)
    print(f"{'blocks of present a job':28} {fresh:8.1f}, old snapshot {first:.1f}, {again:.1f}")
    for waiting in (0, front):
        await empty()
        waits = await delay(url, 200, waiting)
        middle, worst = waits[len(waits) // 2], waits[int(len(waits) * 0.99) - 1]
        name = f"start, {waiting:,} of a full key before"
        print(f"{name:40} median {middle * 1000:.1f} ms, p99 {worst * 1000:.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--front", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=int, default=1000)
    given = parser.parse_args()
    with database() as url:
        asyncio.run(measure(url, given.jobs, given.front, given.rounds, given.rate))


if __name__ == "__main__":
    main()
