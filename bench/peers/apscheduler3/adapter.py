"""APScheduler 3: one process, its job store in PostgreSQL by SQLAlchemy and psycopg, coroutines on the
event loop and plain functions in a pool of threads. A job store of version 3 can't be shared: what
another process stores is only found at the next wake-up, so that there is no pick-up to measure. A
job "now" is one with a date trigger; it is not a queue, and shown for its schedules.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parent))

import common
from apscheduler.executors.asyncio import AsyncIOExecutor
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger

URL = common.DATABASE_URL.replace("postgresql://", "postgresql+psycopg://")


async def noop(number: int) -> None:
    common.started(number)


def plain(number: int) -> None:
    common.started(number)


async def hold(number: int) -> None:
    common.started(number)
    await asyncio.sleep(common.hold.seconds)


def _scheduler() -> AsyncIOScheduler:
    return AsyncIOScheduler(
        jobstores={"default": SQLAlchemyJobStore(url=URL)},
        executors={"default": AsyncIOExecutor(), "threads": ThreadPoolExecutor(16)},
        job_defaults={"misfire_grace_time": None, "coalesce": False, "max_instances": 1_000_000},
        timezone=UTC,
    )


async def setup(wish: dict[str, Any]) -> dict[str, Any]:
    scheduler = _scheduler()
    scheduler.start(paused=True)
    scheduler.shutdown()
    return {"version": importlib.metadata.version("apscheduler")}


async def submit(wish: dict[str, Any]) -> dict[str, Any]:
    scheduler = _scheduler()
    scheduler.start(paused=True)
    task = f"adapter:{wish['task']}"
    executor = "threads" if wish["task"] == "plain" else "default"
    with common.Stopwatch() as watch:
        for due, numbers in common.batches(wish):
            at = datetime.fromtimestamp(due if due is not None else time.time(), UTC)
            for number in numbers:
                scheduler.add_job(task, "date", run_date=at, args=[number], executor=executor)
    scheduler.shutdown(wait=False)
    return watch.answer()


async def schedule(wish: dict[str, Any]) -> None:
    scheduler = _scheduler()
    scheduler.start(paused=True)
    trigger = (
        CronTrigger.from_crontab("* * * * *")
        if wish["every"] == "minute"
        else IntervalTrigger(seconds=1)
    )
    for number in common.numbers(wish):
        scheduler.add_job("adapter:noop", trigger, args=[number])
    scheduler.shutdown(wait=False)


async def work(wish: dict[str, Any]) -> None:
    common.hold.seconds = wish.get("hold", 0.0)
    scheduler = _scheduler()
    scheduler.start()
    await common.until_told()
    scheduler.shutdown(wait=False)


if __name__ == "__main__":
    common.main(setup=setup, submit=submit, schedule=schedule, work=work)
