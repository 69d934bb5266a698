"""How punctual jobs are, and what a tick costs beside how much is stored.

python -m bench.punctuality                precision, and a herd of 100,000 in one second
python -m bench.punctuality --million      1,000,000 due in the same second
python -m bench.punctuality --stored N     a tick with 10,000 and with N schedules and future jobs
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from rich.console import Console
from rich.table import Table

from bench.app import app
from bench.support import connection, database, empty, left, node, run, wait_alive
from rota.scheduler.firer import Firer
from rota.scheduler.shards import AllShards
from rota.store.schedules import ScheduleStore
from rota.store.work import UpkeepStore

_LAG = """
    select extract(epoch from started_at - due_at)::float8 * 1000 from rota.past
    where state = 5 order by 1
"""


async def precision(count: int = 2_000, seconds: float = 10.0) -> list[float]:
    """Milliseconds from due to start of jobs at random moments, on an idle worker."""
    await empty()
    async with connection() as c:
        with node("worker", "scheduler"):
            await wait_alive(c, 1)
            # By SQL: the moments are the database's own.
            await c.execute(
                "insert into rota.future (id, due_at, shard, namespace, lane, task, payload)"
                " select id, rota.now() + interval '3 s' + random() * make_interval(secs => $2),"
                "        rota.shard_of(id, 128), 'default', 'default/default', 'noop', '{}'"
                " from (select rota.new_id() as id from generate_series(1, $1)) as ids",
                count, seconds,
            )  # fmt: skip
            while await c.fetchval("select count(*) from rota.past") < count:
                await asyncio.sleep(0.2)
            return [row[0] for row in await c.fetch(_LAG)]


async def bare_timers(count: int = 2_000, seconds: float = 10.0) -> list[float]:
    """Milliseconds that bare timers of an otherwise idle event loop are late on this machine."""
    late: list[float] = []
    for _ in range(count):
        due = time.perf_counter() + seconds / count
        await asyncio.sleep(seconds / count)
        late.append((time.perf_counter() - due) * 1000)
    return sorted(max(each, 0.0) for each in late)


async def herd(count: int) -> list[float]:
    """Milliseconds from due to start of jobs that are due in the same second."""
    await empty()
    async with connection() as c:
        await c.execute(
            "insert into rota.future (id, due_at, shard, namespace, lane, task, payload)"
            " select id,"
            "        rota.now() + make_interval(secs => 8 + $1 / 60000.0) + random() * interval '1 s',"
            "        rota.shard_of(id, 128), 'default', 'default/default', 'noop', '{}'"
            " from (select rota.new_id() as id from generate_series(1, $1)) as ids",
            count,
        )
        await c.execute("analyze rota.future")
        with node("worker", "scheduler"):
            await wait_alive(c, 1)
            while await c.fetchval("select count(*) from rota.past") < count:
                await asyncio.sleep(0.5)
            assert await left(c) == 0
            return [row[0] for row in await c.fetch(_LAG)]


async def tick_cost(stored: int) -> dict[str, float]:
    """Milliseconds of a tick that finds nothing due, beside so many schedules and future jobs."""
    await empty()
    async with connection() as c:
        await c.execute("delete from rota.schedule")
        await c.execute(
            "insert into rota.schedule (id, namespace, name, shard, next_due, cursor, priority,"
            " guarantee, max_attempts, lane, task, payload, spec)"
            " select id, 'default', 's' || n, rota.shard_of(id, 128), rota.now() + interval '1 day',"
            "  rota.now(), 0, 1, 5, 'default/default', 'noop', '{}', '{}'"
            " from (select rota.new_id() as id, n from generate_series(1, $1) as n) as ids",
            stored,
        )
        await c.execute(
            "insert into rota.future (id, due_at, shard, namespace, lane, task, payload)"
            " select id, rota.now() + interval '1 day', rota.shard_of(id, 128), 'default',"
            "  'default/default', 'noop', '{}'"
            " from (select rota.new_id() as id from generate_series(1, $1)) as ids",
            stored,
        )
        await c.execute("vacuum analyze rota.schedule, rota.future")
    hot = await app.connector.open_database(hot=True)
    firer = Firer(ScheduleStore(hot), AllShards(128))
    upkeep = UpkeepStore(hot)
    costs = {
        "fire": await _milliseconds(firer.tick),
        "release": await _milliseconds(lambda: upkeep.release(range(128), [0] * 128, 5_000)),
    }
    await hot.close()
    return costs


async def _milliseconds(step: Any, rounds: int = 200) -> float:
    for _ in range(10):
        await step()
    spent = []
    for _ in range(rounds):
        began = time.perf_counter()
        await step()
        spent.append((time.perf_counter() - began) * 1000)
    return statistics.median(spent)


def _show(title: str, lags: list[float]) -> None:
    table = Table("jobs", "earliest", "p50 ms", "p99 ms", "last ms", title=title)
    at = [lags[0], lags[len(lags) // 2], lags[int(len(lags) * 0.99)], lags[-1]]
    table.add_row(f"{len(lags):,}", *(f"{lag:,.1f}" for lag in at))
    Console(width=100).print(table)
    assert lags[0] >= 0, "a job started before it was due"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--stored", type=int)
    given = parser.parse_args()
    with database():
        run(app.migrate)
        if given.stored:
            few = run(lambda: tick_cost(10_000))
            many = run(lambda: tick_cost(given.stored))
            for step in few:
                Console().print(
                    f"{step}: {few[step]:.2f} ms with 10,000 stored, {many[step]:.2f} ms with "
                    f"{given.stored:,}: ratio {many[step] / few[step]:.2f}"
                )
        elif given.million:
            _show("a million due in the same second", run(lambda: herd(1_000_000)))
        else:
            _show("bare timers of an idle loop", run(bare_timers))
            _show("random moments, idle worker", run(precision))
            _show("a herd due in one second", run(lambda: herd(100_000)))


if __name__ == "__main__":
    main()
