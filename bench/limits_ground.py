"""What the cases of `bench.limits` share: sizes, an app in a database of its own, and programs that run
nodes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Self

import asyncpg

from bench.ground import Ground, Records
from rota import App, Node

ROOT = Path(__file__).parents[1]
SLOTS = 40
Figures = dict[str, float]

_NODE = """
import asyncio, sys
from bench.limits_app import app
from rota.node import Node
asyncio.run(Node(app, roles=sys.argv[1].split(",")).run())
"""
_numbers = itertools.count(1)


class Size:
    """How much: a quick look, or a measurement."""

    def __init__(self, quick: bool) -> None:
        self.quick = quick
        self.plain_jobs = 15_000 if quick else 100_000
        self.batches = 4 if quick else 10  # with and without a limit, in turns
        self.batch = 12_000 if quick else 50_000
        self.shares, self.share_seconds = (60, 16.0) if quick else (3_000, 200.0)
        self.deep_share = 10_000 if quick else 1_000_000
        self.front = 50_000 if quick else 1_000_000
        self.starts = 100 if quick else 1_000
        self.chaos_jobs = 12_000 if quick else 1_000_000
        self.kills = 1 if quick else 5
        self.lease = 3.0 if quick else 15.0
        self.rate_seconds = 6.0 if quick else 60.0
        self.old_jobs = 40_000 if quick else 1_000_000  # that end under an old snapshot
        self.deep_queue = 200_000 if quick else 10_000_000
        self.big_jobs = 3 if quick else 20
        self.turns = 5 if quick else 15
        self.drain_target = 10.0 if quick else 60.0
        self.load_seconds = 10.0 if quick else 120.0  # of each load of the pool


class Place:
    """An app in a database of its own; its nodes run in this process."""

    def __init__(self, ground: Ground, name: str, **settings: Any) -> None:
        self.ground = ground
        self.database = f"bench_limits_{name}_{next(_numbers)}"
        ground.sql(f"create database {self.database}")
        self.url = ground.url_of(self.database)
        self.app = App(database_url=self.url, node_name=name, **{"processes": 1, **settings})

    async def value(self, query: str, *arguments: Any) -> Any:
        async with self.connection() as connection:
            return await connection.fetchval(query, *arguments)

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        connection = await asyncpg.connect(self.url)
        try:
            yield connection
        finally:
            await connection.close()

    @contextlib.asynccontextmanager
    async def node(self, *roles: str) -> AsyncIterator[Node]:
        node = Node(self.app, list(roles) or ["worker"])
        await node.start()
        try:
            yield node
        finally:
            await node.stop()

    async def until_empty(self) -> None:
        while await self.value("select count(*) from rota.present"):
            await asyncio.sleep(0.02)

    async def drop(self) -> None:
        await self.app.close()
        connection = await asyncpg.connect(self.ground.url)
        await connection.execute(f"drop database if exists {self.database} with (force)")
        await connection.close()


@contextlib.asynccontextmanager
async def place(ground: Ground, name: str, **settings: Any) -> AsyncIterator[Place]:
    made = await asyncio.to_thread(Place, ground, name, **settings)
    try:
        yield made
    finally:
        await made.drop()


async def until(done: Callable[[], bool], seconds: float = 600.0) -> None:
    async with asyncio.timeout(seconds):
        while not done():
            await asyncio.sleep(0.005)


class Programs:
    """Nodes in processes of their own, with the tasks of `bench.limits_app`, and what they noted."""

    def __init__(self, url: str, folder: Path, **settings: Any) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        given = {f"ROTA_{name.upper()}": str(value) for name, value in settings.items()}
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")}
        self.environment = {
            **kept, **given, "ROTA_DATABASE_URL": url, "BENCH_RECORDS": str(folder),
            "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        self._log = (folder / "nodes.log").open("w")
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, roles: str) -> subprocess.Popen[bytes]:
        return self.run([sys.executable, "-c", _NODE, roles])

    def run(self, command: list[str]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            command, env=self.environment, stdout=self._log, stderr=self._log, cwd=ROOT
        )
        self.running.append(process)
        return process

    def kill(self, process: subprocess.Popen[bytes]) -> float:
        """Kill -9. Return when."""
        process.kill()
        process.wait()
        self.running.remove(process)
        return time.time()

    def records(self, name: str) -> Records:
        return Records(self._folder, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.running:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self.running:
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._log.close()


def pairs(before: list[float], after: list[float]) -> Iterator[float]:
    """Ratios of what was measured in turns."""
    return (two / one for one, two in zip(before, after, strict=True) if one)
