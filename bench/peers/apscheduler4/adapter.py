"""APScheduler 4 (its last pre-release): one process; its data store in PostgreSQL by asyncpg, its
event broker on LISTEN/NOTIFY, coroutines on the event loop and plain functions in threads. It has
no call for many: in bulk is one by one. A job at a moment is a schedule with a date trigger.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parent))

import common
from apscheduler import AsyncScheduler
from apscheduler.datastores.sqlalchemy import SQLAlchemyDataStore
from apscheduler.eventbrokers.asyncpg import AsyncpgEventBroker
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger
from sqlalchemy.ext.asyncio import create_async_engine

URL = common.DATABASE_URL.replace("postgresql://", "postgresql+asyncpg://")


async def noop(number: int) -> None:
    common.started(number)


def plain(number: int) -> None:
    common.started(number)


async def hold(number: int) -> None:
    common.started(number)
    await asyncio.sleep(common.hold.seconds)


def _scheduler(slots: int = 100) -> AsyncScheduler:
    engine = create_async_engine(URL, pool_size=10)
    broker = AsyncpgEventBroker(common.DATABASE_URL)
    return AsyncScheduler(SQLAlchemyDataStore(engine), broker, max_concurrent_jobs=slots)


async def _configured(scheduler: AsyncScheduler) -> None:
    import adapter

    for name in ("noop", "plain", "hold"):
        await scheduler.configure_task(
            name, func=getattr(adapter, name), max_running_jobs=1_000_000
        )


async def setup(wish: dict[str, Any]) -> dict[str, Any]:
    async with _scheduler() as scheduler:
        await _configured(scheduler)
    return {"version": importlib.metadata.version("apscheduler")}


async def submit(wish: dict[str, Any]) -> dict[str, Any]:
    async with _scheduler() as scheduler:
        with common.Stopwatch() as watch:
            for due, numbers in common.batches(wish):
                for number in numbers:
                    if due is None:
                        await scheduler.add_job(wish["task"], args=[number])
                    else:
                        at = DateTrigger(datetime.fromtimestamp(due, UTC))
                        await scheduler.add_schedule(wish["task"], at, args=[number])
    return watch.answer()


async def trickle(wish: dict[str, Any]) -> None:
    async with _scheduler() as scheduler:
        await common.at_a_pace(wish, lambda number: scheduler.add_job("noop", args=[number]))


async def schedule(wish: dict[str, Any]) -> None:
    async with _scheduler() as scheduler:
        for number in common.numbers(wish):
            trigger: Any = IntervalTrigger(seconds=1)
            if wish["every"] == "minute":
                trigger = CronTrigger.from_crontab("* * * * *")
            await scheduler.add_schedule("noop", trigger, id=f"s{number}", args=[number])


async def work(wish: dict[str, Any]) -> None:
    common.hold.seconds = wish.get("hold", 0.0)
    # At its limit this version doesn't notice that places come free again: unlimited, where it may be.
    async with _scheduler(wish["slots"] if wish["task"] == "hold" else 1_000_000) as scheduler:
        await _configured(scheduler)
        await scheduler.start_in_background()
        await common.until_told()
        await scheduler.stop()


if __name__ == "__main__":
    common.main(setup=setup, submit=submit, trickle=trickle, schedule=schedule, work=work)
