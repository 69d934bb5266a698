"""DBOS: two processes that each take up to 50 workflows at a time from a queue, which is asked ten
times a second instead of once; a pool of twenty connections. Workflows and steps are asynchronous.
"""

from __future__ import annotations

import importlib.metadata
import os
import signal
import sys
import threading
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


@DBOS.step(name="step")
async def step(number: int) -> None:
    common.started(number)


@DBOS.workflow(name="function")
async def function(number: int, steps: int) -> None:
    for at in range(steps):
        await step(number + at)


def setup(wish: dict[str, Any]) -> dict[str, Any]:
    DBOS(config=_config())
    DBOS.launch()
    DBOS.register_queue("functions", worker_concurrency=50, polling_interval_sec=0.1)
    DBOS.destroy()
    return {"version": importlib.metadata.version("dbos")}


def functions(wish: dict[str, Any]) -> None:
    """So many rounds of them, each started in one transaction when the one before has ended."""
    client = DBOSClient(system_database_url=common.DATABASE_URL, application_name="bench")
    options: Any = {"workflow_name": "function", "queue_name": "functions", "app_version": "1"}
    engine = sqlalchemy.create_engine(URL)
    for _ in range(wish["rounds"]):
        with engine.begin() as connection:
            ids = [
                client.enqueue_in_transaction(connection, options, number, wish["steps"])
                for number in common.chains(wish)
            ]
        for each in ids:
            client.retrieve_workflow(getattr(each, "workflow_id", each)).get_result()


def work(wish: dict[str, Any]) -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    DBOS(config=_config())
    DBOS.launch()
    DBOS.register_queue("functions", worker_concurrency=wish["slots"], polling_interval_sec=0.1)
    stop.wait()
    os._exit(0)  # its orderly end waits for what runs


if __name__ == "__main__":
    common.main(setup=setup, functions=functions, work=work)
