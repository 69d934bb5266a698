"""procrastinate: two processes of 50 coroutines each, psycopg's pool with a connection for each of
ten, LISTEN/NOTIFY on, finished jobs deleted (the quickest of its three ways). It fetches and
finishes one job at a time; there is no setting for more. Looks for due jobs every second instead of
every five, which is what the delay of scheduled jobs depends on.
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
import procrastinate

app = procrastinate.App(
    connector=procrastinate.PsycopgConnector(conninfo=common.DATABASE_URL, min_size=2, max_size=12)
)


@app.task(name="noop")
async def noop(number: int) -> None:
    common.started(number)


@app.task(name="plain")
def plain(number: int) -> None:
    common.started(number)


@app.task(name="hold")
async def hold(number: int) -> None:
    common.started(number)
    await asyncio.sleep(common.hold.seconds)


@app.task(name="tick")
async def tick(timestamp: int, number: int) -> None:
    common.started(number)


TASKS = {"noop": noop, "plain": plain, "hold": hold}


async def setup(wish: dict[str, Any]) -> dict[str, Any]:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
    return {"version": importlib.metadata.version("procrastinate")}


async def submit(wish: dict[str, Any]) -> dict[str, Any]:
    task = TASKS[wish["task"]]
    async with app.open_async():
        with common.Stopwatch() as watch:
            if wish["how"] == "single":
                for number in common.numbers(wish):
                    await task.defer_async(number=number)
            else:
                for due, numbers in common.batches(wish, 5_000):
                    at = datetime.fromtimestamp(due, UTC) if due is not None else None
                    calls = [{"number": number} for number in numbers]
                    await task.configure(schedule_at=at).batch_defer_async(*calls)
    return watch.answer()


async def trickle(wish: dict[str, Any]) -> None:
    async with app.open_async():
        await common.at_a_pace(wish, lambda number: noop.defer_async(number=number))


async def work(wish: dict[str, Any]) -> None:
    common.hold.seconds = wish.get("hold", 0.0)
    cron = "* * * * *" if wish.get("every") == "minute" else "* * * * * *"
    for number in range(wish.get("schedules", 0)):
        app.periodic(cron=cron, periodic_id=str(number), task_kwargs={"number": number})(tick)
    async with app.open_async():
        await app.run_worker_async(
            concurrency=wish["slots"],
            fetch_job_polling_interval=1.0,
            delete_jobs="always",
            listen_notify=True,
        )


if __name__ == "__main__":
    common.main(setup=setup, submit=submit, trickle=trickle, work=work)
