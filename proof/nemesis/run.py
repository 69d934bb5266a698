"""One run: assemble, load, break, heal, wait, dump, judge."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path

import msgspec

from proof.history import Meta, Recorder, dump_database, write_meta
from proof.nemesis.clocks import ClockWatch
from proof.nemesis.cluster import NODE_SETTINGS, Cluster, assembled
from proof.nemesis.faults import Breaker, Record
from proof.nemesis.plan import NETWORK_KINDS, plan_faults
from proof.nemesis.tasks import CATCH_UP, TABLES, app, promises, schedule_promises
from rota.config import Settings

_WARM_UP = 2.0
_DRAIN = 120.0
_FEW = 200
_LEFT = """
    select count(*) from (
        select schedule_id, due_at from rota.present union all
        select schedule_id, due_at from rota.future
    ) as job
    where schedule_id is null or due_at < rota.now() - interval '8 seconds'
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


class Run(msgspec.Struct):
    """What happened, beside the history in the folder."""

    options: Options
    notes: list[str]
    faults: dict[str, int]
    passed: dict[str, int]
    surprises: dict[str, list[int]]
    caught_up: float  # seconds after healing until the backlog was worked off
    left: int = 0  # jobs that had not ended when the wait was over
    stubborn: list[str] = []  # nodes that had to be killed at the end


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
    ) as cluster:  # fmt: skip
        await _prepare(cluster)
        breaker = Breaker(cluster.members, cluster.server, recorder, options.seed)
        clock = ClockWatch(breaker.note_clock_step)
        watching = asyncio.create_task(clock.watch())
        for member in cluster.members.values():
            member.on_surprise = breaker.note_surprise
        for member in cluster.nodes:
            member.start()
        await cluster.all_live(60)
        started = time.monotonic()
        for client in cluster.clients:
            client.start()
        await asyncio.sleep(_WARM_UP)
        await breaker.carry_out(_plan(options, cluster))
        cluster.heal()
        await cluster.all_live(60)
        caught_up = await _catch_up(cluster, breaker)
        healed = time.monotonic()
        await asyncio.sleep(options.calm)
        result = Run(
            options, cluster.notes, dict(breaker.done), dict(breaker.passed), {}, caught_up
        )
        await _finish(cluster, options, result, started, healed, clock)
        watching.cancel()
    return result


def _plan(options: Options, cluster: Cluster) -> list:
    targets = cluster.targets()
    kinds = set(options.kinds)
    if not targets["clocks"]:
        kinds.discard("clock")
    if all(member.namespace is None for member in cluster.nodes):
        kinds -= NETWORK_KINDS
    return plan_faults(options.seed, options.seconds, kinds, targets)


async def _catch_up(cluster: Cluster, breaker: Breaker) -> float:
    """Clients rest until what had piled up is done. So long the faults' effects last: that is written
    down as one of them, and how long it took is told."""
    begun = time.monotonic()
    for client in cluster.clients:
        client.tell(signal.SIGUSR1)
    await _wait_until_few_are_left(cluster, _FEW, _DRAIN)
    for client in cluster.clients:
        client.tell(signal.SIGUSR2)
    breaker.write(begun, Record("catching_up", "everything"))
    return time.monotonic() - begun


async def _prepare(cluster: Cluster) -> None:
    settings = Settings(database_url=cluster.server.url, schema="rota")
    async with app.using(settings):
        await app.migrate()
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
    clock: ClockWatch,
) -> None:
    """The dump comes before the nodes' end: what a stopped node leaves open, nobody closes."""
    await asyncio.gather(*(client.stop() for client in cluster.clients))
    result.left = await _wait_until_few_are_left(cluster, 0, _DRAIN)
    difference, steps = await _database_minus_at(cluster), list(clock.steps)
    dumped = await dump_database(cluster.server.url, "rota", options.folder)
    meta = Meta(
        kind="nemesis", tasks=promises(), schedules=schedule_promises(), started=started,
        healed=healed, ended=dumped - difference, database_minus_at=difference,
        lease_seconds=NODE_SETTINGS["heartbeat"] * NODE_SETTINGS["missed_heartbeats"],
        max_crashes=int(NODE_SETTINGS["max_crashes"]), seed=options.seed,
        note="; ".join(result.notes), max_lag=options.max_lag, clock_steps=steps,
    )  # fmt: skip
    write_meta(options.folder, meta)
    graceful = await asyncio.gather(*(member.stop() for member in cluster.nodes))
    result.stubborn = [
        member.label for member, fine in zip(cluster.nodes, graceful, strict=True) if not fine
    ]
    result.surprises = {m.name: m.surprises for m in cluster.members.values() if m.surprises}


async def _wait_until_few_are_left(cluster: Cluster, few: int, patience: float) -> int:
    """How many jobs were left when patience ran out. Schedules go on: their newest don't count."""
    connection = await cluster.server.connect()
    end = time.monotonic() + patience
    try:
        while True:
            left: int = await connection.fetchval(_LEFT)
            if left <= few or time.monotonic() > end:
                return left
            await asyncio.sleep(0.3)
    finally:
        await connection.close()


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
