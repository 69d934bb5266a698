"""A database of one's own, nodes in their own processes, and clocks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import psutil

from bench.app import app
from rota.store.embedded import open_embedded

_NODE = """
import asyncio, sys
from bench.app import app
from rota.node import Node
asyncio.run(Node(app, roles=sys.argv[1].split(",")).run())
"""


@contextlib.contextmanager
def database() -> Iterator[str]:
    """A fresh embedded PostgreSQL, with fsync on."""
    folder = Path(tempfile.mkdtemp(prefix="rota-bench-"))
    folder.chmod(0o711)
    server = open_embedded(folder)
    os.environ["ROTA_DATABASE_URL"] = server.url
    app.settings = app.settings.replace(database_url=server.url)
    try:
        yield server.url
    finally:
        server.close()
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def node(*roles: str) -> Iterator[psutil.Process]:
    """A node in a process of its own, stopped by its own process id."""
    process = subprocess.Popen([sys.executable, "-c", _NODE, ",".join(roles)])
    try:
        yield psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


async def empty() -> None:
    async with connection() as c:
        await c.execute(
            "truncate rota.present, rota.past, rota.batch, rota.future, rota.dead;"
            "delete from rota.node;"
            "insert into rota.queue (namespace, name) values ('default', 'default')"
            " on conflict do nothing;"
            "insert into rota.lane (lane, namespace, queue, needs)"
            " values ('default/default', 'default', 'default', '{}') on conflict do nothing"
        )
        await c.execute("vacuum analyze rota.present")
        await c.execute("checkpoint")


@contextlib.asynccontextmanager
async def connection() -> AsyncIterator[Any]:
    c = await asyncpg.connect(app.settings.database_url)
    try:
        yield c
    finally:
        await c.close()


async def submit(task: Any, count: int) -> float:
    """Seconds that it took."""
    began = time.perf_counter()
    for start in range(0, count, 10_000):
        await task.submit_many([()] * min(10_000, count - start))
    return time.perf_counter() - began


async def left(c: Any) -> int:
    count: int = await c.fetchval("select count(*) from rota.present")
    return count


async def wait_alive(c: Any, nodes: int) -> None:
    while await c.fetchval("select count(*) from rota.node where state = 'live'") < nodes:
        await asyncio.sleep(0.02)


def median(rounds: list[float]) -> float:
    return statistics.median(rounds)


def run(case: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    async def whole() -> Any:
        try:
            return await case()
        finally:
            await app.close()

    return asyncio.run(whole())
