"""What a job may cost: processor time, statements, and moments in which the event loop stands still.

python -m bench.budget            what it costs here, beside the stored budget
python -m bench.budget --write    make that the budget (bench/budget.json)

Wall time says too much about who else is on the machine. So four things are counted that don't:

- processor time of this process, in units of a loop of plain Python that is measured at the same
  time: a slow machine, or one that others heat up, is slow in both. The best of several rounds, with
  much slack.
- statements, by PostgreSQL's own count, which must be equal to the budget's. For that a worker's
  services are stepped by hand (claim, run, flush) instead of by their timers.
- records that PostgreSQL writes to its log (WAL): a new index, a second version of a row. Their number
  says the same on any machine; a tenth more is allowed, for pages that are cleaned or split in between.
- stalls: how often the loop's thread gave up the processor of its own will other than to wait for
  events, which is what a lock, a blocking read or a `time.sleep` does, without using any processor
  time. Linux counts it; elsewhere it isn't judged.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import resource
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).parent.parent))

from rota import App
from rota.node import Node
from rota.task import Task

FILE = Path(__file__).parent / "budget.json"
JOBS = 5_000
SINGLES = 100
BATCH = 1_000
ROUNDS = 3
_SLACK = 2.0
_RECORDS_SLACK = 1.1
# Garbage collection, a page of code that is read in, another thread that holds the interpreter.
_STALLS_PER_THOUSAND = 100

# A node's own row is kept by a thread of its own, in its own time: not counted.
_COUNT = """
    select coalesce(sum(calls), 0)::int as calls, coalesce(sum(wal_records), 0)::int as records
    from pg_stat_statements
    where toplevel and dbid = (select oid from pg_database where datname = current_database())
      and query not like '%pg_stat_statements%' and query not like 'update %.node %'
"""


@dataclass(frozen=True)
class Cost:
    """Of one kind of work."""

    units: float  # of the plain loop, per job
    statements: int  # in all
    stalls: float  # per thousand jobs
    records: float  # of WAL, per job

    def excesses(self, what: str, budget: Cost) -> list[str]:
        """In words, where it is over its budget."""
        found = []
        if self.units > budget.units * _SLACK:
            found.append(
                f"{what}: {self.units:.2f} units of processor time a job, where {budget.units:.2f} "
                f"are usual and {_SLACK:g} times that is allowed"
            )
        if self.statements != budget.statements:
            found.append(f"{what}: {self.statements} statements instead of {budget.statements}")
        if self.records > budget.records * _RECORDS_SLACK:
            found.append(
                f"{what}: {self.records:.2f} records of WAL a job, where {budget.records:.2f} are usual"
            )
        if self.stalls > budget.stalls + _STALLS_PER_THOUSAND:
            found.append(
                f"{what}: the event loop stood still {self.stalls:.0f} times per thousand jobs, where "
                f"{budget.stalls:.0f} are usual and {_STALLS_PER_THOUSAND} more are allowed"
            )
        return found


Costs = dict[str, Cost]


def load() -> Costs:
    return {what: Cost(**cost) for what, cost in json.loads(FILE.read_text()).items()}


def excesses(costs: Costs, budget: Costs) -> list[str]:
    """Empty when everything is within its budget."""
    return [told for what in budget for told in costs[what].excesses(what, budget[what])]


# -- the measures


def plain_loop() -> float:
    """Seconds of processor time of a fixed piece of Python: calls, attributes, dictionaries, bytes."""

    class Thing:
        __slots__ = ("held",)

        def __init__(self, held: int) -> None:
            self.held = held

        def added(self, other: int) -> int:
            return self.held + other

    def once() -> float:
        began = time.thread_time()
        seen: dict[int, bytes] = {}
        for number in range(20_000):
            seen[number & 1023] = b"%d" % Thing(number).added(7)
        return (time.thread_time() - began) / 20_000

    return min(once() for _ in range(5))


class _Watch:
    """Processor time and stalls between its begin and its end."""

    def __init__(self) -> None:
        self._waits = 0  # voluntary switches while the loop waited for events: those are fine

    @contextlib.contextmanager
    def watching(self) -> Iterator[_Watch]:
        selector = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
        select = selector.select

        def counted(timeout: float | None = None) -> Any:
            before = _switches()
            try:
                return select(timeout)
            finally:
                self._waits += _switches() - before

        selector.select = counted
        switches, cpu = _switches(), time.process_time()
        try:
            yield self
        finally:
            del selector.select
            self.cpu = time.process_time() - cpu
            self.stalls = _switches() - switches - self._waits


def _switches() -> int:
    if not hasattr(resource, "RUSAGE_THREAD"):
        return 0
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


class Measure:
    """Measures an app's tasks on its own database, in this process and on this event loop."""

    def __init__(self, app: App, task: Task[..., Any]) -> None:
        self._app, self._task = app, task

    async def costs(self, rounds: int = ROUNDS) -> Costs:
        """Of each the best round: noise only ever adds."""
        rows = [await self._round() for _ in range(rounds)]
        return {
            what: Cost(
                min(row[what].units for row in rows),
                min(row[what].statements for row in rows),
                min(row[what].stalls for row in rows),
                min(row[what].records for row in rows),
            )
            for what in rows[0]
        }

    async def _round(self) -> Costs:
        async with stepped(self._app, self._task) as steps:
            single = await self._measured(SINGLES, self._submit_singly)
            bulk = await self._measured(JOBS - SINGLES, self._submit_in_bulk)
            run = await self._measured(JOBS, steps.run)
        return {"submit one by one": single, "submit in bulk": bulk, "claim, run and finish": run}

    async def _submit_singly(self, count: int) -> None:
        for _ in range(count):
            await self._task.submit()

    async def _submit_in_bulk(self, count: int) -> None:
        await self._task.submit_many([()] * count)

    async def _measured(self, count: int, work: Any) -> Cost:
        # Over what is opened with the first use, and looked at every few seconds.
        store = await self._app.store()
        await store.database.known_encryption()
        await self._sql("select pg_stat_statements_reset()")
        unit = await asyncio.to_thread(plain_loop)  # or the watchdog would complain
        with _Watch().watching() as watch:
            await work(count)
        unit = min(unit, await asyncio.to_thread(plain_loop))
        statements, records = await self._sql(_COUNT)
        return Cost(
            watch.cpu / count / unit, statements, watch.stalls / count * 1000, records / count
        )

    async def _sql(self, text: str) -> Any:
        database = (await self._app.store()).database
        async with database.connection() as connection:
            return await connection.fetchrow(text)


class Steps:
    """A worker's services, moved by hand: how many statements they make doesn't depend on time then."""

    def __init__(self, node: Node) -> None:
        assert node.worker_role is not None
        self._worker = node.worker_role.worker
        self._finisher = node.worker_role._finisher
        self._outcomes = node.worker_role.outcomes

    async def run(self, count: int) -> None:
        """Claims, runs and finishes so many jobs, a batch at a time."""
        before = self._outcomes.claimed_jobs
        for _ in range(0, count, BATCH):
            await self._worker.tick()
            while self._worker.slots.count_running():
                await asyncio.sleep(0)
            await self._finisher.flush()
        self._finisher._lazy_at = 0.0
        await self._finisher.flush()
        self._finisher._lazy_at = float("inf")
        ran = self._outcomes.claimed_jobs - before
        assert ran == count, f"{ran} jobs ran, and not {count}"

    async def get_ready(self, task: Task[..., Any]) -> None:
        """Connections are open, types and lanes known, everything has been done once."""
        self._worker.hints_work = False
        await self._worker.idle.leave()
        for _ in range(2):
            await task.submit()
            await task.submit_many([()] * (BATCH - 1))
            self._worker._lanes_at = float("-inf")
            await self._worker._refresh_lanes()
            # From here on nothing is done because time has passed.
            self._worker._lanes_at = self._finisher._lazy_at = float("inf")
            await self.run(BATCH)


S = TypeVar("S", bound=Steps)


@contextlib.asynccontextmanager
async def stepped(
    app: App,
    task: Task[..., Any],
    kind: type[S] = Steps,  # type: ignore[assignment]
) -> AsyncIterator[S]:
    """A node whose worker does nothing by itself. Begun while there are no jobs yet."""
    app.settings = app.settings.replace(heartbeat=60.0, concurrency=BATCH, prefetch=0)
    node = Node(app, roles=["worker"])
    # It closes its app at its end, and we go on with it.
    close, app.close = app.close, _nothing  # type: ignore[method-assign]
    try:
        async with node.running():
            assert node.worker_role is not None
            for ticker in reversed(node.worker_role._tickers):
                await ticker.stop()
            node.worker_role._tickers.clear()
            await node.worker_role._listener.close()
            steps = kind(node)
            await steps.get_ready(task)
            yield steps
    finally:
        app.close = close  # type: ignore[method-assign]


async def _nothing() -> None:
    pass


async def prepare(app: App) -> None:
    """PostgreSQL's own count of statements, where it has one."""
    database = (await app.store()).database
    async with database.connection() as connection:
        await connection.execute("create extension if not exists pg_stat_statements")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    from bench.app import app, noop
    from bench.support import database, run

    async def measured() -> Costs:
        await app.migrate()
        del app.tasks["plain"]  # no child processes
        await prepare(app)
        return await Measure(app, noop).costs()

    with database():
        unit = plain_loop()
        costs = run(measured)
    if write:
        rounded = {what: asdict(cost) for what, cost in costs.items()}
        FILE.write_text(json.dumps(rounded, indent=2) + "\n")
    for what, cost in costs.items():
        print(
            f"{what}: {cost.units:.1f} units = {cost.units * unit * 1e6:.1f} µs a job, "
            f"{cost.statements} statements, {cost.stalls:.1f} stalls per thousand, "
            f"{cost.records:.2f} records of WAL a job"
        )
    if not write:
        print("\n".join(excesses(costs, load())) or "within the budget")


if __name__ == "__main__":
    main()
