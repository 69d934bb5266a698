"""What PostgreSQL can do on this machine: for each workload that has such a limit the best of
several ways, each of which is named on the page. Other batches, more connections or smaller tables
may still be quicker.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import psutil

from bench import cases
from bench.app import app
from bench.ground import Ground, Trouble
from bench.sizes import Size, Stats
from bench.support import run

_DATABASE = "bench_postgres"
_LOOP = Path(__file__).with_name("raw_loop.py")

# What the row is called where it is no limit of PostgreSQL's, but the least that one client has to do.
YARDSTICKS = {
    "submit_single": "a bare insert and commit",
    "pick_up": "two bare commits",
}


class Raw:
    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        ground.sql(f"create database {_DATABASE}")
        app.settings = app.settings.replace(database_url=ground.url_of(_DATABASE))
        run(app.migrate)
        self.ways: dict[str, dict[str, float]] = {}  # of each workload: the rate of each way
        self._limits: dict[str, Callable[[Size], Stats]] = {
            "noop_async": self._claim_and_finish,
            "submit_bulk": self._copy,
            "submit_single": self._single,
            "pick_up": self._commits,
        }

    def measure(self, workload: str, size: Size) -> Stats | None:
        limit = self._limits.get(workload)
        return limit(size) if limit else None

    def _claim_and_finish(self, size: Size) -> Stats:
        count = int(30_000 * size.seconds)
        ways: dict[str, Callable[[], Stats]] = {
            f"Rota's own statements on one connection, {batch} a batch": partial(
                self._own_loop, partial(cases.raw_claim_and_finish, batch=batch), count
            )
            for batch in (500, 2_000)
        }
        for batch in (500, 2_000):
            for connections in (1, 2):
                said = f"a bare prototype on {_connections(connections)}, {batch} a batch"
                ways[said] = partial(self._loops, "move", count, connections, batch)
        return self._best("noop_async", ways)

    def _copy(self, size: Size) -> Stats:
        count = int(40_000 * size.seconds)
        ways: dict[str, Callable[[], Stats]] = {
            "COPY into Rota's table, one connection": partial(self._own_loop, cases.raw_copy, count)
        }
        for connections in (1, 2):
            said = f"COPY into a bare prototype, {_connections(connections)}"
            ways[said] = partial(self._loops, "copy", count, connections, 10_000)
        return self._best("submit_bulk", ways)

    def _best(self, workload: str, ways: dict[str, Callable[[], Stats]]) -> Stats:
        seen = {said: way() for said, way in ways.items()}
        self.ways[workload] = {said: figures["rate"] for said, figures in seen.items()}
        return max(seen.values(), key=lambda figures: figures["rate"])

    def _own_loop(self, case: Callable[[int], Any], count: int) -> Stats:
        store, own = self._ground.server_cpu(), _own()
        rate = run(lambda: case(count))
        store, own = self._ground.server_cpu() - store, _own() - own
        return _costs(rate, count, store, own)

    def _loops(self, command: str, count: int, connections: int, batch: int) -> Stats:
        """A bare prototype, a process for each connection, from the first begin to the last end."""
        self._ground.sql(
            "drop schema if exists bare cascade", *_PROTOTYPE, "select 1", database=_DATABASE
        )
        if command == "move":
            self._ground.sql(_FILL.format(count=count), _VACUUM, "checkpoint", database=_DATABASE)
        store = self._ground.server_cpu()
        told = [
            subprocess.Popen(
                [sys.executable, str(_LOOP), self._ground.url_of(_DATABASE), command,
                 str(count // connections), str(batch)],
                stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True,
            )
            for _ in range(connections)
        ]  # fmt: skip
        try:
            return self._told(told, store)
        finally:
            for process in told:
                process.kill()
                process.wait()

    def _told(self, told: list[subprocess.Popen[str]], store: float) -> Stats:
        for process in told:
            if not process.stdout or process.stdout.readline().strip() != "ready":
                raise Trouble("a loop of bare statements did not begin")
        for process in told:
            assert process.stdin
            process.stdin.write("go\n")
            process.stdin.flush()
        ends = [json.loads(process.stdout.readline()) for process in told if process.stdout]
        store = self._ground.server_cpu() - store
        done = sum(end["done"] for end in ends)
        seconds = max(end["ended"] for end in ends) - min(end["began"] for end in ends)
        return _costs(done / seconds, done, store, sum(end["cpu"] for end in ends))

    def _single(self, size: Size) -> Stats:
        """Rows a second of single inserts, each with its commit, from one connection."""
        count = int(1_000 * size.seconds)

        async def insert() -> float:
            connection = await asyncpg.connect(self._ground.url_of(_DATABASE))
            await connection.execute("create table if not exists public.one_row (number int)")
            statement = await connection.prepare("insert into public.one_row values ($1)")
            began = time.perf_counter()
            for number in range(count):
                await statement.fetch(number)
            seconds = time.perf_counter() - began
            await connection.close()
            return count / seconds

        store, own = self._ground.server_cpu(), _own()
        rate = asyncio.run(insert())
        store, own = self._ground.server_cpu() - store, _own() - own
        return {
            "rate": rate, "store_cpu_us": store / count * 1e6, "client_cpu_us": own / count * 1e6,
            "jobs": count,
        }  # fmt: skip

    def _commits(self, size: Size) -> Stats:
        """Two bare commits in a row: a submit and a claim can't do with less."""
        took = run(lambda: cases.bare_commits(size.latencies, 50))
        return {"p50": took[len(took) // 2], "p99": took[int(len(took) * 0.99)], "last": took[-1]}


# A job is a row that is claimed, then deleted and written into a history: the least that survives a
# crash at any moment and keeps what happened. Logged, as all tables here are.
_PROTOTYPE = (
    "create schema bare",
    """create table bare.ready (id uuid primary key, rank bigint not null, node int, payload text)
       with (fillfactor = 50, autovacuum_enabled = off)""",
    "create index on bare.ready (rank)",
    "create table bare.past (id uuid not null, finished_at timestamptz not null, payload text)",
)
_FILL = """
    insert into bare.ready (id, rank, payload)
    select gen_random_uuid(), number, '[]' from generate_series(1, {count}) as number
"""
_VACUUM = "vacuum analyze bare.ready"


def _connections(number: int) -> str:
    return "one connection" if number == 1 else f"{number} connections"


def _costs(rate: float, count: int, store: float, own: float) -> Stats:
    return {
        "rate": rate, "store_cpu_us": store / count * 1e6, "worker_cpu_us": own / count * 1e6,
        "jobs": count,
    }  # fmt: skip


def _own() -> float:
    times = psutil.Process().cpu_times()
    return times.user + times.system
