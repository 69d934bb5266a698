"""DBOS: two processes that each take up to 50 workflows at a time from a queue, which is asked ten
times a second instead of once; a pool of twenty connections. A job is a workflow of one function
without steps, the least that DBOS can do. In bulk: many enqueues in one transaction, for it has no
call for many.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

import common
import sqlalchemy
from dbos import DBOS, DBOSClient, DBOSConfig

URL = sqlalchemy.make_url(common.DATABASE_URL).set(drivername="postgresql+psycopg")


def _config() -> DBOSConfig:
    return {
        "name": "bench", "system_database_url": common.DATABASE_URL, "sys_db_pool_size": 20,
        "log_level": "ERROR", "application_version": "1", "executor_id": str(os.getpid()),
    }  # fmt: skip


@DBOS.workflow(name="noop")
async def noop(number: int) -> None:
    common.started(number)


@DBOS.workflow(name="plain")
def plain(number: int) -> None:
    common.started(number)


@DBOS.workflow(name="hold")
async def hold(number: int) -> None:
    common.started(number)
    await asyncio.sleep(common.hold.seconds)


@DBOS.workflow(name="keyed")
async def keyed(number: int) -> None:
    common.started(number)
    if number >= common.FULL:
        await asyncio.sleep(3600)


@DBOS.workflow(name="tick")
async def tick(due: Any, number: int) -> None:
    common.started(number)


def setup(wish: dict[str, Any]) -> dict[str, Any]:
    DBOS(config=_config())
    DBOS.launch()
    DBOS.register_queue("jobs", worker_concurrency=50, polling_interval_sec=0.1)
    DBOS.register_queue(
        "keyed", worker_concurrency=50, partition_concurrency=1, polling_interval_sec=0.1
    )
    DBOS.destroy()
    return {"version": importlib.metadata.version("dbos")}


def _client() -> DBOSClient:
    return DBOSClient(system_database_url=common.DATABASE_URL, application_name="bench")


def _options(task: str, due: float | None = None, key: str | None = None) -> Any:
    options = {"workflow_name": task, "queue_name": "jobs", "app_version": "1"}
    if key is not None:
        options |= {"queue_name": "keyed", "queue_partition_key": key}
    if due is not None:
        options["delay_seconds"] = max(due - time.time(), 0.0)  # type: ignore[assignment]
    return options


def submit(wish: dict[str, Any]) -> dict[str, Any]:
    client, task = _client(), wish["task"]
    engine = sqlalchemy.create_engine(URL)
    with common.Stopwatch() as watch:
        if wish["how"] == "single":
            for number in common.numbers(wish):
                client.enqueue(_options(task, key=wish.get("key")), number)
        else:
            for due, numbers in common.batches(wish, 1_000):
                options = _options(task, due, wish.get("key"))
                with engine.begin() as connection:
                    for number in numbers:
                        client.enqueue_in_transaction(connection, options, number)
    return watch.answer()


async def trickle(wish: dict[str, Any]) -> None:
    client = _client()
    options = _options(wish.get("task", "noop"), key=wish.get("key"))
    await common.at_a_pace(wish, lambda number: client.enqueue(options, number) and None)


def schedule(wish: dict[str, Any]) -> None:
    client = _client()
    cron = "* * * * *" if wish["every"] == "minute" else "* * * * * *"
    for number in common.numbers(wish):
        client.create_schedule(
            schedule_name=f"s{number}", workflow_name="tick", schedule=cron, context=number
        )


def work(wish: dict[str, Any]) -> None:
    common.hold.seconds = wish.get("hold", 0.0)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    DBOS(config=_config())
    DBOS.launch()
    DBOS.register_queue("jobs", worker_concurrency=wish["slots"], polling_interval_sec=0.1)
    DBOS.register_queue(
        "keyed", worker_concurrency=wish["slots"], partition_concurrency=1, polling_interval_sec=0.1
    )
    stop.wait()
    os._exit(0)  # its orderly end waits for what runs


if __name__ == "__main__":
    common.main(setup=setup, submit=submit, trickle=trickle, schedule=schedule, work=work)
