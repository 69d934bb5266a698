"""What bare statements cost on this machine: those of a claim and a finish in a loop, rows by bare COPY,
single rows and commits one by one. A yardstick, not a limit: larger batches or more connections may be
quicker.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import asyncpg
import psutil

from bench import cases
from bench.app import app
from bench.ground import Ground
from bench.sizes import Size, Stats
from bench.support import run

_DATABASE = "bench_postgres"


class Raw:
    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        ground.sql(f"create database {_DATABASE}")
        app.settings = app.settings.replace(database_url=ground.url_of(_DATABASE))
        run(app.migrate)
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
        return self._rate(cases.raw_claim_and_finish, int(60_000 * size.seconds))

    def _copy(self, size: Size) -> Stats:
        return self._rate(cases.raw_copy, int(80_000 * size.seconds))

    def _rate(self, case: Callable[[int], Any], count: int) -> Stats:
        store, own = self._ground.server_cpu(), _own()
        rate = run(lambda: case(count))
        store, own = self._ground.server_cpu() - store, _own() - own
        return {
            "rate": rate, "store_cpu_us": store / count * 1e6, "worker_cpu_us": own / count * 1e6,
            "jobs": count,
        }  # fmt: skip

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

        return {"rate": asyncio.run(insert()), "jobs": count}

    def _commits(self, size: Size) -> Stats:
        """Two bare commits in a row: a submit and a claim can't do with less."""
        took = run(lambda: cases.bare_commits(size.latencies, 50))
        return {"p50": took[len(took) // 2], "p99": took[int(len(took) * 0.99)], "last": took[-1]}


def _own() -> float:
    times = psutil.Process().cpu_times()
    return times.user + times.system
