"""How many members a second a map does, beside plain jobs of a no-op in the same run.

python -m bench.maps [MEMBERS] [--size N]

The members come from a generator (`app.map`), and one node runs everything. The memory is that of this
process, which submits, and of the node at its peak.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import time
from collections.abc import AsyncIterator

import psutil

from bench.app import app, member, noop
from bench.support import connection, database, empty, left, node, run, submit, wait_alive

_JOBS = 20_000


async def numbers(count: int) -> AsyncIterator[int]:
    for number in range(count):
        yield number


async def plain_jobs(count: int) -> float:
    """Jobs a second: stored before, then run by one node."""
    await empty()
    await submit(noop, count)
    async with connection() as c:
        with node("worker", "scheduler"):
            await wait_alive(c, 1)
            while await left(c) == count:
                await asyncio.sleep(0.005)
            before, began = await left(c), time.perf_counter()
            while await left(c):
                await asyncio.sleep(0.02)
            return before / (time.perf_counter() - began)


async def members(count: int, size: int) -> None:
    rate = await plain_jobs(_JOBS)
    print(f"plain jobs: {rate:,.0f}/s")
    await empty()
    async with connection() as c:
        with node("worker", "scheduler") as process:
            await wait_alive(c, 1)
            began = time.perf_counter()
            started = await app.map(member, over=numbers(count), size=size)
            stored, most = time.perf_counter() - began, 0
            while (await started.status()).state == "running":
                most = max(most, process.memory_info().rss)
                await asyncio.sleep(0.1)
            seconds = time.perf_counter() - began
            assert await started.result() == {"count": count, "succeeded": count, "failed": 0}
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(
        f"members: {count / seconds:,.0f}/s ({count:,} in {seconds:.1f} s; stored in {stored:.1f} s)"
    )
    print(f"ratio: {count / seconds / rate:.1f}")
    print(f"memory: submitter {own / 1e6:,.0f} MB, node {most / 1e6:,.0f} MB at most")
    print(f"load: {psutil.getloadavg()[0]:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("members", type=int, nargs="?", default=100_000)
    parser.add_argument("--size", type=int, default=1000)
    options = parser.parse_args()

    async def case() -> None:
        await app.migrate()
        await members(options.members, options.size)

    with database():
        run(case)


if __name__ == "__main__":
    main()
