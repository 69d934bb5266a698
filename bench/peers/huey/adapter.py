"""huey with Redis on a Unix socket, without persistence: two processes of eight threads each (of its
process workers each runs one job at a time), which look for due tasks every second, the shortest it
allows; results not stored. For 5 ms jobs 50 threads in each process. Coroutines it doesn't know: the
asynchronous rows are plain functions too. It has no call for many: in bulk is one by one. Its
periodic tasks are told to one process.
"""

from __future__ import annotations

import importlib.metadata
import logging
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

import common
from huey import RedisHuey, crontab

huey = RedisHuey(
    "bench", url=f"unix://{common.REDIS_URL}", results=False, store_none=False, utc=False
)


@huey.task()
def noop(number: int) -> None:
    common.started(number)


@huey.task()
def hold(number: int) -> None:
    common.started(number)
    time.sleep(common.hold.seconds)


def _task(name: str) -> Any:
    return hold if name == "hold" else noop


def setup(wish: dict[str, Any]) -> dict[str, Any]:
    return {"version": importlib.metadata.version("huey")}


def submit(wish: dict[str, Any]) -> dict[str, Any]:
    task = _task(wish["task"])
    huey.pending_count()
    with common.Stopwatch() as watch:
        for due, numbers in common.batches(wish):
            eta = datetime.fromtimestamp(due) if due is not None else None
            for number in numbers:
                task.schedule(args=(number,), eta=eta) if eta else task(number)
    return watch.answer()


async def trickle(wish: dict[str, Any]) -> None:
    await common.at_a_pace(wish, lambda number: noop(number) and None)


def _schedule(number: int) -> None:
    def tick() -> None:
        common.started(number)

    huey.periodic_task(crontab(), name=f"tick{number}")(tick)


def work(wish: dict[str, Any]) -> None:
    logging.disable(logging.INFO)
    common.hold.seconds = wish.get("hold", 0.0)
    for number in range(wish.get("schedules", 0)):
        _schedule(number)
    threads = wish["slots"] if wish["task"] == "hold" else 8
    huey.create_consumer(
        workers=threads, worker_type="thread", scheduler_interval=1, initial_delay=0.01,
        max_delay=0.1, check_worker_health=False,
    ).run()  # fmt: skip


if __name__ == "__main__":
    common.main(setup=setup, submit=submit, trickle=trickle, work=work)
