"""What idle workers cost: statements a second by kind, and how many of them look when a job comes.

python bench/idle.py [--workers 50] [--seconds 20]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import psutil
from rich.console import Console
from rich.table import Table

from bench.app import noop
from bench.support import connection, database, empty, left, run, wait_alive

PER_PROCESS = 10
SUBMITS = 100

_NODES = """
import asyncio, signal, sys
from bench.app import app
from rota.app import App
from rota.node import Node

async def main():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop.set)
    nodes = []
    for _ in range(int(sys.argv[1])):
        one = App(app.settings)
        one.tasks["noop"] = app.tasks["noop"]
        nodes.append(Node(one, roles=["worker"]))
        await nodes[-1].start()
    await stop.wait()
    await asyncio.gather(*(node.stop() for node in nodes))

asyncio.run(main())
"""

# Told apart by what only they say.
_KINDS = {
    "heartbeat": "heartbeat_at = ",
    "claim": "skip locked",
    "lanes": "select lane, queue, needs",
    "signals": "select job_id, token, kind",
    "advertises that it is idle": "set idle_slots = $",
    "hint passed on": "rota.draw($",
    "check of the listener": "select $1",
}


@contextlib.contextmanager
def workers(count: int) -> Iterator[None]:
    """Nodes in a few processes, stopped by their own process ids."""
    sizes = [min(PER_PROCESS, count - start) for start in range(0, count, PER_PROCESS)]
    environment = {**os.environ, "ROTA_POOL_SIZE": "2"}
    processes = [
        subprocess.Popen([sys.executable, "-c", _NODES, str(size)], env=environment)
        for size in sizes
    ]
    try:
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGINT)
        for process in processes:
            process.wait(60)


async def _calls(c: Any) -> Counter[str]:
    """Statements so far, by kind."""
    counted: Counter[str] = Counter()
    for text, calls in await c.fetch("select query, calls from pg_stat_statements where toplevel"):
        kind = next((kind for kind, mark in _KINDS.items() if mark in text.lower()), "other")
        counted[kind] += calls
    return counted


async def _processor_seconds(c: Any) -> float:
    """Time that the server's processes have used."""
    used = 0.0
    for (pid,) in await c.fetch("select pid from pg_stat_activity"):
        with contextlib.suppress(psutil.Error):
            times = psutil.Process(pid).cpu_times()
            used += times.user + times.system
    return used


async def measure(count: int, seconds: float) -> Table:
    await empty()
    async with connection() as c:
        await c.execute("create extension if not exists pg_stat_statements")
        with workers(count):
            async with asyncio.timeout(60):
                await wait_alive(c, count)
            await asyncio.sleep(8)  # until they have come to rest
            before, used = await _calls(c), await _processor_seconds(c)
            began = time.perf_counter()
            await asyncio.sleep(seconds)
            took = time.perf_counter() - began
            idle, used = await _calls(c) - before, await _processor_seconds(c) - used
            looked = await _looks_per_submit(c, idle["claim"] / took)
            waits = await _waits(c)
    table = Table("what", "figure", title=f"{count} idle workers")
    for kind, calls in idle.most_common():
        table.add_row(f"{kind}, per second", f"{calls / took:.2f}")
    table.add_row("all statements, per second", f"{idle.total() / took:.2f}")
    table.add_row("server's processor time, % of a core", f"{100 * used / took:.1f}")
    table.add_row("workers that look, per submit", f"{looked:.2f}")
    table.add_row("submit to start, p50 ms", f"{waits[len(waits) // 2]:.1f}")
    table.add_row("submit to start, p99 ms", f"{waits[int(len(waits) * 0.99)]:.1f}")
    return table


async def _looks_per_submit(c: Any, idle_rate: float) -> float:
    before, began = await _calls(c), time.perf_counter()
    for _ in range(SUBMITS):
        await noop.submit()
        await asyncio.sleep(0.1)
    while await left(c):
        await asyncio.sleep(0.05)
    by_themselves = idle_rate * (time.perf_counter() - began)
    return float((await _calls(c) - before)["claim"] - by_themselves) / SUBMITS


async def _waits(c: Any) -> list[float]:
    rows = await c.fetch(
        "select extract(epoch from started_at - created_at)::float8 * 1000 from rota.past"
    )
    return sorted(row[0] for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20)
    given = parser.parse_args()
    with database():
        from bench.app import app

        run(app.migrate)
        table = run(lambda: measure(given.workers, given.seconds))
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
