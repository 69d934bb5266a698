"""dramatiq with Redis on a Unix socket, without persistence: two processes of eight threads, no
middleware but retries and age limit, a prefetch of 1,000. For 5 ms jobs 50 threads in each process.
The asynchronous rows are plain functions too, which cost it less than coroutines in its AsyncIO
middleware would. It has no call for many: in bulk is one by one.
"""

from __future__ import annotations

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
import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import AgeLimit, Retries

os.environ.setdefault("dramatiq_queue_prefetch", "1000")
broker = RedisBroker(url=f"unix://{common.REDIS_URL}", middleware=[AgeLimit(), Retries()])
dramatiq.set_broker(broker)


@dramatiq.actor(actor_name="noop")
def noop(number: int) -> None:
    common.started(number)


@dramatiq.actor(actor_name="hold")
def hold(number: int) -> None:
    common.started(number)
    time.sleep(common.hold.seconds)


def _actor(name: str) -> Any:
    return hold if name == "hold" else noop


def setup(wish: dict[str, Any]) -> dict[str, Any]:
    return {"version": importlib.metadata.version("dramatiq")}


def submit(wish: dict[str, Any]) -> dict[str, Any]:
    actor = _actor(wish["task"])
    broker.client.ping()
    with common.Stopwatch() as watch:
        for due, numbers in common.batches(wish):
            for number in numbers:
                delay = (
                    {"delay": max(int((due - time.time()) * 1000), 0)} if due is not None else {}
                )
                actor.send_with_options(args=(number,), **delay)
    return watch.answer()


async def trickle(wish: dict[str, Any]) -> None:
    await common.at_a_pace(wish, lambda number: noop.send(number) and None)


def work(wish: dict[str, Any]) -> None:
    common.hold.seconds = wish.get("hold", 0.0)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    threads = wish["slots"] if wish["task"] == "hold" else 8
    worker = dramatiq.Worker(broker, worker_threads=threads, worker_timeout=100)
    worker.start()
    stop.wait()
    worker.stop(timeout=3000)


if __name__ == "__main__":
    common.main(setup=setup, submit=submit, trickle=trickle, work=work)
