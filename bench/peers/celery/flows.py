"""Celery with Redis on a Unix socket, without persistence, as broker and for results, which a chord
needs: the prefork pool with two processes, for there are two cores; each takes many messages ahead (a
prefetch of 128); no events, gossip, mingle or heartbeats, acknowledged early.
"""

from __future__ import annotations

import importlib.metadata
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parent))

import common
from celery import Celery, chord

_URL = f"redis+socket://{common.REDIS_URL}"
app = Celery("flows", broker=_URL, backend=_URL)
app.conf.update(
    worker_prefetch_multiplier=128, worker_send_task_events=False, timezone="UTC",
    broker_connection_retry_on_startup=True, worker_disable_rate_limits=True,
)  # fmt: skip


@app.task(name="step")
def step(number: int) -> None:
    common.started(number)


@app.task(name="join", ignore_result=False)
def join(results: list[Any]) -> None:
    common.started(common.JOIN)


def setup(wish: dict[str, Any]) -> dict[str, Any]:
    return {"version": importlib.metadata.version("celery")}


def fan(wish: dict[str, Any]) -> None:
    # The first warms up.
    for width in [min(wish["width"], 100), *[wish["width"]] * wish["count"]]:
        common.sent(0)
        body = chord([step.s(number) for number in range(width)])(join.s())
        body.get(timeout=1_100)


def work(wish: dict[str, Any]) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "flows", "worker", "--loglevel", "ERROR",
         "--pool", os.environ.get("BENCH_POOL", "prefork"), "--concurrency", "2",
         "--without-gossip", "--without-mingle", "--without-heartbeat", "-n", f"w{os.getpid()}"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    signal.signal(signal.SIGTERM, lambda *_: child.send_signal(signal.SIGTERM))
    child.wait()


if __name__ == "__main__":
    common.main(setup=setup, fan=fan, work=work)
