"""Load at full speed for a long time: `make soak`, `python -m bench.soak --minutes 60`.

A scheduler, two workers and a client, each in a process of its own, on one embedded PostgreSQL: quick
jobs, jobs that fail and are retried, jobs under a limit, delayed jobs of which half are cancelled,
schedules of every second, and a history in partitions of an hour. Every few seconds it samples the
memory of each process, sizes of tables and indexes, dead rows, transaction ids, and how late jobs start.

A figure is flat if its mean over the last third of the time is at most 1.1 times that of the middle
third, or less than a megabyte (or a tenth of a second) more; the first third is for warming up. What is
kept until its retention is over (history, ledger) is judged per job. With --publish the graphs go into
docs/images/bench, and the table into docs/benchmarks.md.

At full speed, an hour has about as many jobs as a day at a twentieth of it.
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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import msgspec
import psutil

from bench import sections
from bench.soak_app import app
from bench.support import database
from bench.svg import lines

MOST_RATIO = 1.1
_IMAGES = Path(__file__).parents[1] / "docs" / "images" / "bench"
_SCHEDULES = 20
_FREEZE_MAX_AGE = 200_000_000  # at which PostgreSQL freezes old rows whatever happens: its default

_NODE = """
import asyncio, logging, sys
from bench.soak_app import app
logging.disable(logging.ERROR)  # jobs that fail as they should
from rota.node import Node
asyncio.run(Node(app, roles=[sys.argv[1]]).run())
"""
# Small enough that the jobs of a round are done before the next but few.
_ROUND = {"noop": 2_000, "returns": 200, "flaky": 50, "limited": 100, "delayed": 100}

# Tables that hold what is kept until its retention is over, and all others, which must not grow.
_KEPT = "^(past|occurrence|job_log|trace|dead|run_stats|event|outbox)"
_SIZES = """
    select c.relname ~ $2 as kept, sum(pg_table_size(c.oid))::bigint as tables,
           sum(pg_indexes_size(c.oid))::bigint as indexes
    from pg_class as c where c.relkind = 'r' and c.relnamespace = $1::regnamespace group by 1
"""
_COUNTS = """
    select coalesce(sum(n_dead_tup) filter (where relname !~ $2), 0)::bigint as dead,
           coalesce(sum(n_tup_ins) filter (where relname ~ '^(past|dead)'), 0)::bigint as ended,
           (select pg_snapshot_xmax(pg_current_snapshot())::text::bigint) as xid,
           coalesce((select extract(epoch from rota.now() - min(p.due_at))::float8 from rota.present as p
                     where p.state = 3), 0) as lag
    from pg_stat_user_tables where schemaname = $1
"""


class Sample(msgspec.Struct, frozen=True):
    """Everything at one moment, in seconds since the start. Memory and sizes in MB."""

    at: float
    memory: dict[str, float]
    tables: float
    indexes: float
    kept: float
    dead_rows: int
    ended: int
    xid: int
    lag: float


class Verdict(NamedTuple):
    name: str
    unit: str
    middle: float
    last: float
    slack: float

    @property
    def ratio(self) -> float:
        return self.last / self.middle if self.middle else 1.0

    @property
    def flat(self) -> bool:
        return self.last <= self.middle * MOST_RATIO or self.last - self.middle <= self.slack


# -- judging


def thirds(samples: Sequence[Sample], figure: Any) -> tuple[float, float]:
    """Return the means of a figure over the middle and the last third of the time."""
    begin, end = samples[0].at, samples[-1].at
    part = (end - begin) / 3
    middle = [figure(one) for one in samples if begin + part <= one.at < begin + 2 * part]
    last = [figure(one) for one in samples if one.at >= begin + 2 * part]
    return sum(middle) / max(len(middle), 1), sum(last) / max(len(last), 1)


def verdicts(samples: Sequence[Sample]) -> list[Verdict]:
    found = [
        Verdict(
            f"memory of the {name}", "MB", *thirds(samples, lambda one, n=name: one.memory[n]), 1.0
        )
        for name in samples[0].memory
    ]
    return [
        *found,
        Verdict("tables of what is not kept", "MB", *thirds(samples, lambda one: one.tables), 1.0),
        Verdict("their indexes", "MB", *thirds(samples, lambda one: one.indexes), 1.0),
        Verdict("history and ledger", "bytes a job", *thirds(samples, _kept_per_job), 5.0),
        Verdict("dead rows", "rows", *thirds(samples, lambda one: one.dead_rows), 20_000.0),
        Verdict("the oldest ready job waits", "s", *thirds(samples, lambda one: one.lag), 0.1),
    ]


def _kept_per_job(sample: Sample) -> float:
    return sample.kept * 1e6 / max(sample.ended, 1)


class Rates(NamedTuple):
    """What the whole time came to."""

    jobs: int
    per_second: float
    xids_per_job: float

    @property
    def days_to_freeze(self) -> float:
        """Days at this rate until PostgreSQL freezes old rows by itself."""
        return _FREEZE_MAX_AGE / max(self.xids_per_job * self.per_second, 1e-9) / 86_400


def rates(samples: Sequence[Sample]) -> Rates:
    first, last = samples[0], samples[-1]
    jobs = last.ended - first.ended
    return Rates(jobs, jobs / max(last.at - first.at, 1e-9), (last.xid - first.xid) / max(jobs, 1))


# -- running


@contextlib.contextmanager
def nodes() -> Iterator[dict[str, psutil.Process]]:
    """Return a scheduler and two workers, stopped by their own process ids."""
    started = {
        name: subprocess.Popen([sys.executable, "-c", _NODE, name.split()[0]], env={**os.environ})
        for name in ("scheduler", "worker 1", "worker 2")
    }
    try:
        yield {name: psutil.Process(process.pid) for name, process in started.items()}
    finally:
        for process in started.values():
            process.send_signal(signal.SIGINT)
        for process in started.values():
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


async def load(until: float, backlog: int) -> None:
    """Submit rounds of everything, while no more than so many jobs wait."""
    store, number = await app.store(), 0
    tasks = {name: app.require_task(name) for name in ("noop", "returns", "flaky", "limited")}
    while time.monotonic() < until:
        number += 1
        for name, task in tasks.items():
            await task.submit_many([(number * 1000 + n,) for n in range(_ROUND[name])])
        later = tasks["noop"].options(delay=20)
        handles = await later.submit_many([(n,) for n in range(_ROUND["delayed"])])
        await app.jobs.cancel_many([handle.id for handle in handles[::2]])
        while time.monotonic() < until and await _waiting(store) > backlog:
            await asyncio.sleep(0.05)


async def _waiting(store: Any) -> int:
    async with store.database.connection() as connection:
        found: int = await connection.fetchval(
            "select count(*) from (select from rota.present limit 100000) as p"
        )
    return found


async def sample(connection: Any, processes: Mapping[str, psutil.Process], began: float) -> Sample:
    sizes = {row["kept"]: row for row in await connection.fetch(_SIZES, "rota", _KEPT)}
    counts = await connection.fetchrow(_COUNTS, "rota", _KEPT)
    memory = {name: process.memory_info().rss / 1e6 for name, process in processes.items()}
    kept = sizes.get(True)
    memory["client"] = psutil.Process().memory_info().rss / 1e6
    return Sample(
        at=time.monotonic() - began, memory=memory,
        tables=sizes[False]["tables"] / 1e6, indexes=sizes[False]["indexes"] / 1e6,
        kept=(kept["tables"] + kept["indexes"]) / 1e6 if kept else 0.0,
        dead_rows=counts["dead"], ended=counts["ended"], xid=counts["xid"], lag=counts["lag"],
    )  # fmt: skip


async def soak(url: str, seconds: float, every: float, backlog: int) -> list[Sample]:
    await app.migrate()
    store = await app.store()
    await store.database.fetch("set_history_hours", 1)
    connection = await asyncpg.connect(url)
    found: list[Sample] = []
    try:
        with nodes() as processes:
            for number in range(_SCHEDULES):
                await app.schedule(f"tick-{number}", "ticked", every=1)
            while not await connection.fetchval(
                "select count(*) = 3 from rota.node where state = 'live'"
            ):
                await asyncio.sleep(0.1)
            began = time.monotonic()
            loading = asyncio.create_task(load(began + seconds, backlog))
            while not loading.done():
                found.append(await sample(connection, processes, began))
                await asyncio.wait([loading], timeout=every)
            await loading
    finally:
        await connection.close()
        await app.close()
    return found


# -- reporting


def body(samples: Sequence[Sample]) -> str:
    known, whole = verdicts(samples), rates(samples)
    minutes = (samples[-1].at - samples[0].at) / 60
    text = [
        f"{minutes:.0f} minutes of everything at once: {whole.jobs:,} jobs ended,",
        f"{whole.per_second:,.0f} a second. Means of the middle and of the last third; flat is what",
        "grew by at most a tenth.", "",
        "| | middle third | last third | ratio | |", "| --- | ---: | ---: | ---: | --- |",
        *(f"| {one.name}, {one.unit} | {one.middle:,.1f} | {one.last:,.1f} | {one.ratio:.2f} | "
          f"{'flat' if one.flat else '**grows**'} |" for one in known), "",
        f"A job used {whole.xids_per_job:.3f} transaction ids. At this rate PostgreSQL freezes old rows",
        f"every {whole.days_to_freeze:,.1f} days.", "",
        "![Memory by process](images/bench/soak_memory.svg)",
        "![Tables and indexes](images/bench/soak_tables.svg)",
        "![How late jobs start](images/bench/soak_lag.svg)",
    ]  # fmt: skip
    return "\n".join(text)


def draw(samples: Sequence[Sample], folder: Path) -> None:
    minutes = [one.at / 60 for one in samples]

    def series(figure: Any) -> list[tuple[float, float]]:
        return list(zip(minutes, map(figure, samples), strict=True))

    memory = {name: series(lambda one, n=name: one.memory[n]) for name in samples[0].memory}
    tables = {
        "tables": series(lambda one: one.tables), "indexes": series(lambda one: one.indexes),
        "dead rows, thousands": series(lambda one: one.dead_rows / 1000),
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "soak_memory.svg").write_text(
        lines("Memory of each process", "MB, by minutes", memory)
    )
    (folder / "soak_tables.svg").write_text(
        lines("Tables of what is not kept", "MB, by minutes", tables)
    )
    (folder / "soak_lag.svg").write_text(
        lines(
            "The oldest ready job has waited", "s, by minutes", {"lag": series(lambda one: one.lag)}
        )
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--every", type=float, default=5.0, help="seconds between samples")
    parser.add_argument("--backlog", type=int, default=5_000, help="jobs that may wait")
    parser.add_argument("--publish", action="store_true", help="into docs/benchmarks.md")
    parser.add_argument("--save", type=Path, help="write the samples into this file, as JSON")
    parser.add_argument("--graphs", type=Path, help="draw the graphs into this folder")
    given = parser.parse_args(argv)
    with database() as url:
        app.settings = app.settings.replace(database_url=url)
        samples = asyncio.run(soak(url, given.minutes * 60, given.every, given.backlog))
    if given.save:
        given.save.write_bytes(msgspec.json.encode(samples))
    print(body(samples))
    if given.publish:
        sections.put(sections.SOAK, body(samples))
    if given.publish or given.graphs:
        draw(samples, given.graphs or _IMAGES)
    return 0 if all(one.flat for one in verdicts(samples)) else 1


if __name__ == "__main__":
    sys.exit(main())
