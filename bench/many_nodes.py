"""What a thousand nodes cost the store: `python -m bench.many_nodes`, `make bench-nodes`.

Many light nodes in a few processes, on one embedded PostgreSQL: first idle, then with no-op jobs
submitted at a fixed rate; for 10, 100 and 1,000 workers, with a scheduler for a hundred of them. Of each
number: statements by kind, processor time of the store, connections, and what a job takes of them.

Nothing may grow with the number of nodes, per job or per second, but heartbeats: each node sends one
statement every five seconds. What is judged are statements; processor time is shown.

    python -m bench.many_nodes --nodes 10 100 1000 --rate 5000 --seconds 30
    python -m bench.many_nodes --pgbouncer             # all of it through PgBouncer, in transaction mode
    python -m bench.many_nodes --quick                 # 4 and 12 nodes
    python -m bench.many_nodes --publish               # the table into docs/benchmarks.md
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg

from bench import sections
from bench.app import app, noop
from bench.ground import cpu_of
from bench.growth_reading import names_of, normal
from bench.pooler import pooled
from bench.support import run, wait_alive
from rota.store.embedded import open_embedded

MOST_RATIO = 1.2
_PER_PROCESS = 100
_CONNECTIONS = 5  # of a node at most: two of its pool, its listener, its heartbeat, one to spare
_SPARE_CONNECTIONS = 100

_NODES = """
import asyncio, signal, sys
from bench.app import app
from rota.app import App
from rota.node import Node

async def main(workers, schedulers):
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop.set)
    nodes = []
    for number in range(workers + schedulers):
        one = App(app.settings.replace(node_name=f"node-{number}"))
        one.tasks["noop"] = app.tasks["noop"]
        nodes.append(Node(one, roles=["worker" if number < workers else "scheduler"]))
        await nodes[-1].start()
    await stop.wait()
    for first in range(0, len(nodes), 20):
        await asyncio.gather(*(node.stop() for node in nodes[first:first + 20]))

asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
"""

# What is no query of a file, or belongs together, by what only it says. The first that fits counts.
_KINDS = {
    "heartbeat": "heartbeat_at = ", "hint passed on": "rota.draw($",
    "submit": "submit_", "copy": "copy rota", "advertises that it is idle": "set idle_slots = $",
    "check of the listener": "select $1", "begin and commit": "begin", "commit": "commit",
}  # fmt: skip
# What belongs to the jobs, and is counted for each of them and not for each second.
_OF_JOBS = {"claim", "finish_succeeded", "close_finished", "submit", "copy"}


class Phase(NamedTuple):
    """What happened in a stretch of time."""

    seconds: float
    calls: Counter[str]
    store_cpu: float
    connections: int
    jobs: int = 0

    @property
    def beside_heartbeats(self) -> float:
        """Statements a second but heartbeats and what jobs make necessary."""
        left = self.calls.total() - self.calls["heartbeat"]
        return (left - sum(self.calls[kind] for kind in _OF_JOBS)) / self.seconds

    def per_job(self, kind: str) -> float:
        return self.calls[kind] / max(self.jobs, 1)


class Figures(NamedTuple):
    nodes: int
    schedulers: int
    idle: Phase
    loaded: Phase


# -- the ground


@contextlib.contextmanager
def large_database(connections: int) -> Iterator[tuple[str, int]]:
    """A fresh embedded PostgreSQL for so many connections: its URL and its process."""
    folder = Path(tempfile.mkdtemp(prefix="rota-bench-"))
    folder.chmod(0o711)
    server = open_embedded(folder)
    try:
        asyncio.run(_execute(server.url, f"alter system set max_connections = {connections}"))
        server.close()
        server = open_embedded(folder)
        os.environ["ROTA_DATABASE_URL"] = server.url
        app.settings = app.settings.replace(database_url=server.url)
        data = Path(asyncio.run(_execute(server.url, "show data_directory")))
        yield server.url, int((data / "postmaster.pid").read_text().split()[0])
    finally:
        server.close()
        shutil.rmtree(folder, ignore_errors=True)


async def _execute(url: str, statement: str) -> Any:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


@contextlib.contextmanager
def cluster(workers: int, schedulers: int, url: str) -> Iterator[None]:
    """Nodes in a few processes, stopped by their own process ids."""
    parts = max(-(-workers // _PER_PROCESS), 1)
    environment = {**os.environ, "ROTA_POOL_SIZE": "2", "ROTA_DATABASE_URL": url}
    processes = [
        subprocess.Popen([
            sys.executable, "-c", _NODES, str(share(workers, parts, part)),
            str(share(schedulers, parts, part)),
        ], env=environment)
        for part in range(parts)
    ]  # fmt: skip
    try:
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGINT)
        for process in processes:
            try:
                process.wait(120)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def share(whole: int, parts: int, part: int) -> int:
    """Return how many of a whole fall to one of the parts, all as equal as can be."""
    return whole // parts + (part < whole % parts)


# -- measuring


async def _calls(c: Any) -> Counter[str]:
    """Count the statements so far, by kind."""
    counted: Counter[str] = Counter()
    names = names_of((await app.store()).database.queries)
    for text, calls in await c.fetch(
        "select query, calls from pg_stat_statements where toplevel and dbid = (select oid from "
        "pg_database where datname = current_database()) and query not like '%pg_stat_%'"
    ):
        counted[kind_of(text, names)] += calls
    return counted


def kind_of(text: str, names: Mapping[str, str]) -> str:
    """Return the name of a statement: that of its query, if it is one of a file."""
    lowered = " ".join(text.lower().split())
    kind = next((kind for kind, mark in _KINDS.items() if mark in lowered), None)
    return kind or names.get(normal(text)) or lowered[:40]


async def _phase(c: Any, postmaster: int, seconds: float, rate: int) -> Phase:
    before, used, began = await _calls(c), cpu_of(postmaster), time.perf_counter()
    jobs = await _submit(rate, seconds) if rate else 0
    while time.perf_counter() - began < seconds or (jobs and await _left(c)):
        await asyncio.sleep(0.05)
    took = time.perf_counter() - began
    connections = await c.fetchval(
        "select count(*) from pg_stat_activity where backend_type = 'client backend'"
    )
    used = cpu_of(postmaster) - used
    return Phase(took, await _calls(c) - before, used, connections, jobs)


async def _submit(rate: int, seconds: float) -> int:
    """Submit no-ops at a rate, twenty batches a second. Late ones aren't caught up."""
    end, batch, jobs = time.perf_counter() + seconds, max(rate // 20, 1), 0
    while (now := time.perf_counter()) < end:
        await noop.submit_many([()] * batch)
        jobs += batch
        await asyncio.sleep(max(0.05 - (time.perf_counter() - now), 0))
    return jobs


async def _left(c: Any) -> bool:
    found: bool = await c.fetchval("select exists (select from rota.present)")
    return found


async def measure(
    workers: int, postmaster: int, seconds: float, rate: int, url: str, patience: float
) -> Figures:
    schedulers = max(workers // 100, 1)
    c = await asyncpg.connect(app.settings.database_url)
    try:
        await c.execute("create extension if not exists pg_stat_statements")
        await c.execute("truncate rota.present, rota.past, rota.batch; delete from rota.node")
        with cluster(workers, schedulers, url):
            async with asyncio.timeout(patience):
                await wait_alive(c, workers + schedulers)
            await asyncio.sleep(10)  # until they have come to rest
            idle = await _phase(c, postmaster, seconds, 0)
            loaded = await _phase(c, postmaster, seconds, rate)
    finally:
        await c.close()
    return Figures(workers, schedulers, idle, loaded)


# -- reporting


def rows_of(found: Sequence[Figures]) -> list[tuple[str, list[float], bool]]:
    """Return what is shown: its name, a figure for each number of nodes, whether it must not grow."""

    def each(figure: Any) -> list[float]:
        return [figure(one) for one in found]

    return [
        ("connections", each(lambda one: one.idle.connections), False),
        ("idle: heartbeats a second",
         each(lambda one: one.idle.calls["heartbeat"] / one.idle.seconds), False),
        ("idle: all other statements a second", each(lambda one: one.idle.beside_heartbeats), True),
        ("idle: store, % of a core",
         each(lambda one: 100 * one.idle.store_cpu / one.idle.seconds), False),
        ("loaded: jobs a second", each(lambda one: one.loaded.jobs / one.loaded.seconds), False),
        ("loaded: claims per 1,000 jobs", each(lambda one: 1000 * one.loaded.per_job("claim")), True),
        ("loaded: finishes per 1,000 jobs",
         each(lambda one: 1000 * one.loaded.per_job("finish_succeeded")), True),
        ("loaded: hints passed on per 1,000 jobs",
         each(lambda one: 1000 * one.loaded.per_job("hint passed on")), True),
        ("loaded: store, CPU µs per job",
         each(lambda one: 1e6 * one.loaded.store_cpu / max(one.loaded.jobs, 1)), False),
    ]  # fmt: skip


def table(found: Sequence[Figures]) -> list[str]:
    numbers = [f"{one.nodes:,} workers, {one.schedulers} schedulers" for one in found]
    lines = ["| | " + " | ".join(numbers) + " |", "| --- |" + " ---: |" * len(found)]
    lines += [
        f"| {name} | " + " | ".join(f"{value:,.1f}" for value in values) + " |"
        for name, values, _ in rows_of(found)
    ]
    kinds = sorted({kind for one in found for kind in one.idle.calls} - {"heartbeat"})
    lines += [
        f"| idle: {kind}, a second | "
        + " | ".join(f"{one.idle.calls[kind] / one.idle.seconds:.2f}" for one in found) + " |"
        for kind in kinds
    ]  # fmt: skip
    return lines


def grown(found: Sequence[Figures]) -> list[str]:
    """Return what grows with the number of nodes and must not, with a unit of slack for what is tiny."""
    return [
        f"{name}: {values[0]:.2f} with {found[0].nodes} nodes, {values[-1]:.2f} with {found[-1].nodes}"
        for name, values, flat in rows_of(found)
        if flat and values[-1] > values[0] * MOST_RATIO + 1.0
    ]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--rate", type=int, default=5_000, help="jobs a second")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each phase")
    parser.add_argument(
        "--patience", type=float, default=600.0, help="seconds until all must be up"
    )
    parser.add_argument("--pgbouncer", action="store_true", help="through PgBouncer")
    parser.add_argument("--quick", action="store_true", help="4 and 12 nodes, 200 jobs a second")
    parser.add_argument("--publish", action="store_true", help="into docs/benchmarks.md")
    given = parser.parse_args(argv)
    nodes, rate, seconds = given.nodes, given.rate, given.seconds
    if given.quick:
        nodes, rate, seconds = [4, 12], 200, 3.0
    found = []
    with large_database(max(nodes) * _CONNECTIONS + _SPARE_CONNECTIONS) as (url, postmaster):
        run(app.migrate)
        for number in nodes:
            with pooled(url, number * _CONNECTIONS) if given.pgbouncer else _direct(url) as theirs:
                found.append(
                    run(
                        lambda n=number, u=theirs: measure(
                            n, postmaster, seconds, rate, u, given.patience
                        )
                    )  # type: ignore[misc]
                )
    text = "\n".join(table(found))
    print(text)
    left = grown(found)
    print(
        "\n".join(f"grows with the nodes: {one}" for one in left) or "nothing grows but heartbeats"
    )
    if given.publish:
        sections.put(sections.NODES, text)
    return 1 if left else 0


@contextlib.contextmanager
def _direct(url: str) -> Iterator[str]:
    yield url


if __name__ == "__main__":
    sys.exit(main())
