"""What a submit into a limited queue costs when that is deep: the depth is kept, and not counted.

python -m bench.quotas                       a million jobs against a thousand
python -m bench.quotas --deep 10000000       ten million: about 8 GB of disk

Two schemas of one database have a queue with a limit of depth, of which one is deep. Submits, one by one
from several producers and in bulk, go to both in turns, so that whatever else the machine does slows
both. Printed are the rates, and the median of the ratios of all turns. A third schema has a queue
without a limit, for what the limit costs.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import asyncpg

sys.path.insert(0, str(Path(__file__).parent.parent))

from rota import App

_FILL = """
insert into {0}.present (id, rank, due_at, namespace, lane, task, payload)
select {0}.new_id(), n, now(), 'default', 'default/default', 'noop', '{{}}'
from generate_series(1, $1::bigint) as n
"""
_MAX_DEPTH = 1_000_000_000


class Place:
    """A schema with a queue."""

    def __init__(self, url: str, name: str) -> None:
        self.name = name
        self.app = App(database_url=url, schema=f"bench_quotas_{name}", processes=1)
        self.noop = self.app.task(_noop, name="noop")

    async def fill(self, jobs: int, limited: bool) -> None:
        connection = await asyncpg.connect(self.app.settings.database_url)
        try:
            schema = self.app.settings.schema
            await connection.execute(f"drop schema if exists {schema} cascade")
            await self.app.migrate()
            await self.noop.submit()
            step = 500_000
            for start in range(0, jobs, step):
                await connection.execute(_FILL.format(schema), min(step, jobs - start))
            await connection.execute(f"vacuum analyze {schema}.present")
        finally:
            await connection.close()
        if limited:
            status = await self.app.queues.set_max_depth("default", _MAX_DEPTH)
            print(f"{self.name}: {status.depth:,} jobs")

    async def submit_alone(self, jobs: int, producers: int = 8) -> float:
        """Return the jobs a second of several producers."""

        async def produce() -> None:
            for _ in range(jobs // producers):
                await self.noop.submit()

        began = time.perf_counter()
        await asyncio.gather(*(produce() for _ in range(producers)))
        return jobs / (time.perf_counter() - began)

    async def submit_bulk(self, jobs: int) -> float:
        began = time.perf_counter()
        await self.noop.submit_many([()] * jobs)
        return jobs / (time.perf_counter() - began)

    async def drop(self) -> None:
        connection = await asyncpg.connect(self.app.settings.database_url)
        await connection.execute(f"drop schema if exists {self.app.settings.schema} cascade")
        await connection.close()
        await self.app.close()


async def _noop() -> None: ...


async def measure(url: str, deep: int, turns: int) -> dict[str, float]:
    shallow, full, free = Place(url, "shallow"), Place(url, "deep"), Place(url, "unlimited")
    try:
        await shallow.fill(1_000, limited=True)
        await full.fill(deep, limited=True)
        await free.fill(1_000, limited=False)
        rates: dict[tuple[str, str], list[float]] = {}
        for turn in range(turns):
            places = (shallow, full, free) if turn % 2 else (free, full, shallow)
            for place in places:
                alone = await place.submit_alone(400)
                bulk = await place.submit_bulk(2_000)
                if turn:  # the first warms up
                    rates.setdefault((place.name, "alone"), []).append(alone)
                    rates.setdefault((place.name, "bulk"), []).append(bulk)
        return _report(rates)
    finally:
        for place in (shallow, full, free):
            await place.drop()


def _report(rates: dict[tuple[str, str], list[float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for way in ("alone", "bulk"):
        for name, other in (("deep", "shallow"), ("shallow", "unlimited")):
            pairs: Any = zip(rates[name, way], rates[other, way], strict=True)
            ratio = statistics.median(one / two for one, two in pairs)
            found[f"{way}: {name} against {other}"] = ratio
            mean = statistics.median(rates[name, way])
            print(f"{way}: {name} {mean:,.0f}/s, against {other}: {ratio:.2f}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deep", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--url", help="a database; the embedded one by default")
    chosen = parser.parse_args()

    async def run() -> None:
        app = App()
        url = chosen.url or await app.database_url()
        await measure(url, chosen.deep, chosen.turns)
        await app.close()

    asyncio.run(run())


if __name__ == "__main__":
    main()
