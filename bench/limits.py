"""What limits cost: jobs a second with and without, and whether a full key is in the way of others.

python -m bench.limits [--jobs 2000] [--front 20000]
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
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


async def rate(
    url: str, jobs: int, prepare: Callable[[App], Awaitable[Any]], **options: Any
) -> float:
    """Return the jobs a second of one node with 40 slots, from its first start to its last."""
    starts = Starts()
    app = make_app(url, starts)
    await prepare(app)
    task = app.tasks["noop"]
    await task.options(**options).submit_many([(number,) for number in range(jobs)])
    node = Node(app, ["worker"])
    await node.start()
    await until(lambda: len(starts.at) == jobs)
    await node.stop()
    await app.queues.set_limits("default", concurrency=None, concurrency_per_key=None)
    await app.close()
    return jobs / (max(starts.at.values()) - min(starts.at.values()))


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


async def measure(url: str, jobs: int, front: int) -> None:
    async def nothing(app: App) -> None: ...

    async def limit(app: App) -> None:
        await app.queues.set_limits("default", concurrency=_SLOTS)

    async def limit_key(app: App) -> None:
        await app.queues.set_limits("default", concurrency_per_key=_SLOTS)

    await make_app(url, Starts()).migrate()
    cases: list[tuple[str, Any, dict[str, Any]]] = [
        ("no limit", nothing, {}),
        ("a key, no limit", nothing, {"concurrency_key": "a"}),
        (f"a queue's limit of {_SLOTS}", limit, {}),
        (f"a key's limit of {_SLOTS}", limit_key, {"concurrency_key": "a"}),
    ]
    for name, prepare, options in cases:
        await empty()
        print(f"{name:28} {await rate(url, jobs, prepare, **options):8,.0f} jobs/s")
    async with connection() as c:
        writes = await c.fetchval(
            "select n_tup_upd from pg_stat_user_tables where relname = 'meter'"
        )
    print(f"{'updates of limits per start':28} {(writes or 0) / (2 * jobs):8.3f}")
    for waiting in (0, front):
        await empty()
        waits = await delay(url, 100, waiting)
        middle, worst = waits[len(waits) // 2], waits[int(len(waits) * 0.99) - 1]
        name = f"start, {waiting:,} of a full key before"
        print(f"{name:40} median {middle * 1000:.1f} ms, p99 {worst * 1000:.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--front", type=int, default=20_000)
    given = parser.parse_args()
    with database() as url:
        asyncio.run(measure(url, given.jobs, given.front))


if __name__ == "__main__":
    main()
