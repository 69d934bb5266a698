"""Celery with Redis on a Unix socket, without persistence: the prefork pool with two processes, for
there are two cores; each takes many messages ahead (a prefetch of 128); results ignored, no events,
no gossip, mingle or heartbeats, acknowledged early. For 5 ms jobs the gevent pool with 100
greenlets. Coroutines it doesn't know: the asynchronous rows are plain functions too. Schedules by
beat, which runs beside the worker.
"""

from __future__ import annotations

import importlib.metadata
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parent))

import common
from celery import Celery
from celery.schedules import crontab

app = Celery("adapter", broker=f"redis+socket://{common.REDIS_URL}")
app.conf.update(
    task_ignore_result=True, worker_prefetch_multiplier=128, worker_send_task_events=False,
    broker_connection_retry_on_startup=True, worker_max_tasks_per_child=None, timezone="UTC",
    beat_max_loop_interval=1, worker_disable_rate_limits=True, broker_pool_limit=10,
)  # fmt: skip
HOLD_SECONDS = float(os.environ.get("BENCH_HOLD", "0"))

_count = int(os.environ.get("BENCH_SCHEDULES", "0"))
_every: Any = crontab() if os.environ.get("BENCH_EVERY") == "minute" else timedelta(seconds=1)
app.conf.beat_schedule = {
    f"s{number}": {"task": "noop", "schedule": _every, "args": (number,)}
    for number in range(_count)
}


@app.task(name="noop")
def noop(number: int) -> None:
    common.started(number)


@app.task(name="hold")
def hold(number: int) -> None:
    common.started(number)
    time.sleep(HOLD_SECONDS)


def _task(name: str) -> Any:
    return hold if name == "hold" else noop


def setup(wish: dict[str, Any]) -> dict[str, Any]:
    return {"version": importlib.metadata.version("celery")}


def submit(wish: dict[str, Any]) -> dict[str, Any]:
    task = _task(wish["task"])
    with (
        app.connection_for_write() as connection,
        app.amqp.Producer(connection) as producer,
        common.Stopwatch() as watch,
    ):
        for due, numbers in common.batches(wish):
            eta = datetime.fromtimestamp(due, UTC) if due is not None else None
            for number in numbers:
                task.apply_async((number,), producer=producer, eta=eta)
    return watch.answer()


async def trickle(wish: dict[str, Any]) -> None:
    with app.connection_for_write() as connection, app.amqp.Producer(connection) as producer:
        await common.at_a_pace(
            wish, lambda number: noop.apply_async((number,), producer=producer) and None
        )


def work(wish: dict[str, Any]) -> None:
    environment = {
        **os.environ, "BENCH_HOLD": str(wish.get("hold", 0.0)), "PYTHONPATH": os.pathsep.join(sys.path),
    }  # fmt: skip
    pool = ["--pool", "prefork", "--concurrency", "2"]
    if wish["task"] == "hold":
        pool = ["--pool", "gevent", "--concurrency", str(wish["slots"])]
    command = [sys.executable, "-m", "celery", "-A", "adapter", "worker", "--loglevel", "ERROR"]
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "-n", f"w{os.getpid()}"]
    children = [subprocess.Popen([*command, *pool, *quiet], env=environment)]
    if wish.get("schedules"):
        environment.update(BENCH_SCHEDULES=str(wish["schedules"]), BENCH_EVERY=wish["every"])
        beat = [sys.executable, "-m", "celery", "-A", "adapter", "beat", "--loglevel", "ERROR"]
        place = str(Path(os.environ["BENCH_RECORDS"]) / "beat")
        children.append(subprocess.Popen([*beat, "-s", place], env=environment))

    def stop(*_: object) -> None:
        for child in children:
            child.send_signal(signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    for child in children:
        child.wait()


if __name__ == "__main__":
    common.main(setup=setup, submit=submit, trickle=trickle, work=work)
