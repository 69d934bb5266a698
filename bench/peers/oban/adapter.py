"""Oban for Python: two processes of 50 jobs each, a pool of ten connections, finished jobs kept, as it
always does. Scheduled jobs are staged twice a second instead of once, up to 20,000 at a time.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

import common
from oban import Oban, worker
from oban.schema import install


@worker(queue="default")
class Noop:
    async def process(self, job: Any) -> None:
        common.started(job.args["number"])


@worker(queue="default")
class Hold:
    async def process(self, job: Any) -> None:
        common.started(job.args["number"])
        await asyncio.sleep(common.hold.seconds)


TASKS: dict[str, Any] = {"noop": Noop, "hold": Hold}


async def setup(wish: dict[str, Any]) -> dict[str, Any]:
    pool = await Oban.create_pool(common.DATABASE_URL)
    await install(pool)
    await pool.close()
    return {"version": importlib.metadata.version("oban")}


async def submit(wish: dict[str, Any]) -> dict[str, Any]:
    pool = await Oban.create_pool(common.DATABASE_URL)
    client, task = Oban(pool=pool), TASKS[wish["task"]]
    with common.Stopwatch() as watch:
        if wish["how"] == "single":
            for number in common.numbers(wish):
                await client.enqueue(task.new({"number": number}))
        else:
            for due, numbers in common.batches(wish, 5_000):
                when = {"scheduled_at": datetime.fromtimestamp(due, UTC)} if due is not None else {}
                await client.enqueue_many([task.new({"number": each}, **when) for each in numbers])
    await pool.close()
    return watch.answer()


async def trickle(wish: dict[str, Any]) -> None:
    pool = await Oban.create_pool(common.DATABASE_URL)
    client = Oban(pool=pool)
    await common.at_a_pace(wish, lambda number: client.enqueue(Noop.new({"number": number})))
    await pool.close()


def _scheduled(number: int) -> None:
    class Tick:
        async def process(self, job: Any) -> None:
            common.started(number)

    Tick.__name__ = Tick.__qualname__ = f"Tick{number}"
    worker(queue="default", cron="* * * * *")(Tick)


async def work(wish: dict[str, Any]) -> None:
    common.hold.seconds = wish.get("hold", 0.0)
    for number in range(wish.get("schedules", 0)):
        _scheduled(number)
    pool = await Oban.create_pool(common.DATABASE_URL, min_size=2, max_size=10)
    running = Oban(pool=pool, queues={"default": wish["slots"]}, stager={"interval": 0.5})
    await running.start()
    await common.until_told()
    await running.stop()
    await pool.close()


if __name__ == "__main__":
    common.main(setup=setup, submit=submit, trickle=trickle, work=work)
