"""One run: assemble, load, break, heal, wait, dump, judge."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec

from proof.history import ClockStep, Meta, Recorder, dump_database, write_meta
from proof.nemesis.clocks import ClockWatch
from proof.nemesis.cluster import LEASE_SECONDS, NODE_SETTINGS, Cluster, assembled
from proof.nemesis.database import LOST, Database, set_defaults
from proof.nemesis.faults import Breaker, Record
from proof.nemesis.plan import NETWORK_KINDS, RECIPES, plan_faults
from proof.nemesis.readers import Readers
from proof.nemesis.tasks import (
    CATCH_UP,
    DEPLOYED,
    LIMITS,
    TABLES,
    app,
    promises,
    schedule_promises,
)
from rota.config import Settings

_WARM_UP = 2.0
_DRAIN = 120.0
_FEW = 200
_CLOCK_ERROR = 0.25
_LEFT = """
    select count(*) from (
        select schedule_id, due_at from rota.present union all
        select schedule_id, due_at from rota.future
    ) as job
    where (schedule_id is null or due_at < rota.now() - interval '15 seconds')
      and due_at < rota.now() + interval '1 hour'  -- some ask for absurd delays
"""


class Options(msgspec.Struct, frozen=True):
    seconds: float
    seed: int
    rate: float
    kinds: frozenset[str]
    folder: Path
    calm: float = 15.0  # under load after the last fault, for the figures of lag
    max_lag: float = 5.0  # in calm; more on a machine that is busy with other things
    skewed: bool = False  # one node an hour ahead and one an hour behind, all the time

    @property
    def everything(self) -> bool:
        return self.kinds == frozenset(RECIPES)

    @property
    def database_clock(self) -> bool:
        """Every other seed leaves the database's clock alone: with it, moments are less certain."""
        chosen = "database_clock" in self.kinds
        return chosen and (
            not self.everything or random.Random(f"{self.seed} clock").random() < 0.5
        )


class Run(msgspec.Struct):
    """What happened, beside the history in the folder."""

    options: Options
    notes: list[str]
    faults: dict[str, int]
    passed: dict[str, int]
    surprises: dict[str, list[int]]
    caught_up: float  # seconds after healing until the backlog was worked off
    left: int = 0  # jobs that had not ended when the wait was over
    operator_stuck: bool = False  # it waited for an answer when all was healed
    stubborn: list[str] = []  # nodes that had to be killed at the end
    defaults: dict[str, str] = {}  # as the database's owner has set them
    raised: dict[str, int] = {}  # SQLSTATEs before the effect
    told: dict[str, int] = {}  # and after it
    held: dict[str, int] = {}  # tables that somebody read for long
    held_longest: float = 0.0
    dumps: int = 0
    broken_dumps: int = 0


async def run(options: Options) -> Run:
    """Breaks a cluster and leaves its history in the folder."""
    _cancel_on_sigterm()
    environment = {
        "NEMESIS_FOLDER": str(options.folder), "NEMESIS_SEED": str(options.seed),
        "NEMESIS_RATE": str(options.rate / 2), "ROTA_SCHEMA": "rota",
    }  # fmt: skip
    recorder = Recorder(options.folder, "faults")
    async with assembled(
        options.folder, environment, network=bool(options.kinds & NETWORK_KINDS),
        clocks="clock" in options.kinds, skewed=options.skewed,
        database_clock=options.database_clock,
    ) as cluster:  # fmt: skip
        result = Run(options, cluster.notes, {}, {}, {}, 0.0)
        if options.everything:
            result.defaults = await set_defaults(cluster.server, options.seed)
        await _prepare(cluster)
        database = Database(cluster.server, options.seed)
        await database.prepare()
        breaker = Breaker(
            cluster.members, cluster.server, database, recorder, options.seed, LEASE_SECONDS
        )
        clock = ClockWatch(breaker.note_clock_step)
        watching = [
            asyncio.create_task(clock.watch()),
            asyncio.create_task(cluster.server.watch_crashes(breaker.note_crash)),
        ]
        for member in cluster.members.values():
            member.on_surprise = breaker.note_surprise
        for member in cluster.nodes:
            member.start()
        await cluster.all_live(60)
        started = time.monotonic()
        for client in (*cluster.clients, cluster.operator):
            client.start()
        async with _reading(cluster, options, result):
            await asyncio.sleep(_WARM_UP)
            deploying = asyncio.create_task(_deploy(options))
            await breaker.carry_out(_plan(options, cluster), weather=options.everything)
            await deploying
            mended = time.monotonic()
            cluster.heal()
            await cluster.all_live(60)
            result.operator_stuck = not await cluster.operator.stop(_DRAIN, _said(options.folder))
            result.caught_up = await _catch_up(cluster, breaker, mended)
            healed = time.monotonic()
            await asyncio.sleep(options.calm)
            await asyncio.gather(*(client.stop() for client in cluster.clients))
            result.left = await _wait_until_few_are_left(cluster, 0, _DRAIN)
        result.faults, result.passed = dict(breaker.done), dict(breaker.passed)
        result.raised = await database.raised()
        result.told = dict(sum((m.proxy.told for m in cluster.members.values()), Counter()))
        steps = sorted([*clock.steps, *breaker.clock_steps], key=lambda step: step.at)
        await _finish(cluster, options, result, started, healed, steps)
        for task in watching:
            task.cancel()
    return result


def _said(folder: Path) -> Callable[[], int]:
    """How much the operator has written down. It has runs of functions to help to their ends: without it
    they would wait for signals for ever, and be taken for stuck."""
    return lambda: (folder / "operations.jsonl").stat().st_size


async def _deploy(options: Options) -> None:
    """In the middle, the code of durable functions is changed."""
    await asyncio.sleep(options.seconds / 2)
    (options.folder / DEPLOYED).write_text(str(time.monotonic()))


@contextlib.asynccontextmanager
async def _reading(cluster: Cluster, options: Options, result: Run) -> AsyncIterator[None]:
    readers = Readers(cluster.server, options.seed)
    if options.everything:
        readers.start()
    try:
        yield
    finally:
        await readers.stop()
        result.held, result.held_longest = dict(readers.tables), readers.longest
        result.dumps, result.broken_dumps = readers.dumps, readers.broken_dumps


def _plan(options: Options, cluster: Cluster) -> list:
    targets = cluster.targets()
    kinds = set(options.kinds)
    if not targets["clocks"]:
        kinds.discard("clock")
    if cluster.server.clock is None:
        kinds.discard("database_clock")
    if all(member.namespace is None for member in cluster.nodes):
        kinds -= NETWORK_KINDS
    return plan_faults(options.seed, options.seconds, kinds, targets)


async def _catch_up(cluster: Cluster, breaker: Breaker, mended: float) -> float:
    """Clients rest until what had piled up is done. So long the faults' effects last: that is written
    down as one of them, and how long it took is told."""
    for client in cluster.clients:
        client.tell(signal.SIGUSR1)
    await _wait_until_few_are_left(cluster, _FEW, _DRAIN)
    for client in cluster.clients:
        client.tell(signal.SIGUSR2)
    breaker.write(mended, Record("catching_up", "everything"))
    return time.monotonic() - mended


async def _prepare(cluster: Cluster) -> None:
    settings = Settings(database_url=cluster.server.url, schema="rota")
    async with app.using(settings):
        await app.migrate()
        await app.queues.set_max_run_time("other", LIMITS.run_time)
        connection = await cluster.server.connect()
        await connection.execute(TABLES)
        await connection.close()
        for promise in schedule_promises():
            await app.schedule(
                promise.name, promise.task, every=promise.every, payload={"number": 1},
                overlap=promise.overlap, catch_up=CATCH_UP[promise.catch_up],
            )  # fmt: skip


async def _finish(
    cluster: Cluster,
    options: Options,
    result: Run,
    started: float,
    healed: float,
    steps: list[ClockStep],
) -> None:
    """The dump comes before the nodes' end: what a stopped node leaves open, nobody closes."""
    difference = await _database_minus_at(cluster)
    dumped = await dump_database(cluster.server.url, "rota", options.folder)
    meta = Meta(
        kind="nemesis", tasks=promises(), schedules=schedule_promises(), started=started,
        healed=healed, ended=dumped - difference, database_minus_at=difference,
        lease_seconds=LEASE_SECONDS,
        max_crashes=int(NODE_SETTINGS["max_crashes"]), seed=options.seed,
        note="; ".join(result.notes), max_lag=options.max_lag, clock_steps=steps,
        # Between two steps what was before has come again: no moment is wrong by more than one.
        clock_error=_CLOCK_ERROR + max((-step.by for step in steps if step.by < 0), default=0.0),
    )  # fmt: skip
    write_meta(options.folder, meta)
    graceful = await asyncio.gather(*(member.stop() for member in cluster.nodes))
    result.stubborn = [
        member.label for member, fine in zip(cluster.nodes, graceful, strict=True) if not fine
    ]
    result.surprises = {m.name: m.surprises for m in cluster.members.values() if m.surprises}


async def _wait_until_few_are_left(cluster: Cluster, few: int, patience: float) -> int:
    """Return how many jobs were left when patience ran out. Schedules go on: their newest don't count.

    A machine that others load may have piled up more than it can do in `patience`. That is counted
    from the last time that fewer were left than ever before: what is stuck is found, and slowness is not
    taken for it.
    """
    end, fewest = time.monotonic() + patience, sys.maxsize
    while True:
        connection = await cluster.server.connect()
        try:
            while True:
                left: int = await connection.fetchval(_LEFT)
                if left < fewest:
                    end, fewest = time.monotonic() + patience, left
                if left <= few or time.monotonic() > end:
                    return left
                await asyncio.sleep(0.3)
        except LOST:  # the server may crash by itself: see `watch_crashes`
            continue
        finally:
            connection.terminate()


async def _database_minus_at(cluster: Cluster) -> float:
    """From the quickest of a few questions: half its round trip is the error."""
    connection = await cluster.server.connect()
    best = (float("inf"), 0.0)
    for _ in range(20):
        before = time.monotonic()
        now = await connection.fetchval("select extract(epoch from clock_timestamp())::float8")
        after = time.monotonic()
        best = min(best, (after - before, now - (before + after) / 2))
    await connection.close()
    return best[1]


def _cancel_on_sigterm() -> None:
    """As Ctrl-C does: everything is unwound."""
    task = asyncio.current_task()
    if task is not None and os.name == "posix":
        with contextlib.suppress(RuntimeError, ValueError):  # not in the main thread
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
