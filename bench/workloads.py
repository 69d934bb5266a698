"""What is measured of every peer, with the same hands. Each workload gives named figures.

A rate is counted from the moment when all worker processes have begun (or one second after the first)
until the store says that nothing is left: what ran before isn't counted, completions are. `ran` and
`twice` say how often handlers really started, from their own records; a figure whose jobs did not run
exactly once each says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import asyncpg

from bench.ground import Arena, Trouble, wait_until
from bench.lags import cron_minute, cron_second, herd, million, pick_up
from bench.sizes import WARM, Size, Stats, Workload

# -- throughput


def noop_async(arena: Arena, size: Size) -> Stats:
    return _throughput(arena, size, "noop")


def noop_sync(arena: Arena, size: Size) -> Stats:
    return _throughput(arena, size, "plain", arena.peer.plain_processes)


def held(arena: Arena, size: Size) -> Stats:
    """No-ops while somebody keeps a transaction open since before they were stored."""
    with _old_transaction(arena):
        return _throughput(arena, size, "noop")


def hold_5ms(arena: Arena, size: Size) -> Stats:
    arena.refresh()
    count = int(min(arena.peer.pace, 15_000) * size.seconds)
    preload(arena, "hold", count)
    return drain(arena, count, task="hold", hold=0.005, slots=100, patience=size.patience)


def _throughput(arena: Arena, size: Size, task: str, processes: int | None = None) -> Stats:
    if not arena.occupied:  # then it is fresh, and with a connection in it can't be dropped
        arena.refresh()
    count = max(int(arena.peer.pace * size.seconds), 200)
    preload(arena, task, count)
    return drain(arena, count, task=task, patience=size.patience, processes=processes)


def preload(arena: Arena, task: str, count: int) -> None:
    arena.call("submit", count=count, how="bulk", task=task)
    if arena.peer.store == "postgres":
        # For all alike: none is to be judged by plans made for empty tables.
        arena.ground.sql("analyze", "checkpoint", database=arena.database)


def drain(arena: Arena, count: int, *, patience: float, **wish: Any) -> Stats:
    records = arena.records()
    with arena.working(**wish):
        if not wait_until(lambda: records.read() or arena.check_alive(), 60, 0.005):
            raise Trouble("no job was started within a minute")
        several = wish.get("processes") or arena.peer.processes
        wait_until(lambda: records.read() and records.processes >= several, 1, 0.005)
        began, before = time.perf_counter(), records.read()
        store, worker = arena.store_cpu(), arena.worker_cpu()
        end = time.monotonic() + patience
        while records.read() < count and time.monotonic() < end:
            arena.check_alive()
            time.sleep(0.02)
        whole = wait_until(lambda: not arena.left(), max(end - time.monotonic(), 5))
        seconds = time.perf_counter() - began
        store, worker = arena.store_cpu() - store, arena.worker_cpu() - worker
        memory = arena.worker_memory()
    return _rates(records, count, before, seconds, store, worker, memory, whole)


def _rates(
    records: Any, count: int, before: int, seconds: float, store: float, worker: float,
    memory: float, whole: bool,
) -> Stats:  # fmt: skip
    records.read()
    done = len(records.seen) - before
    if done < count * 0.2 and before > count * 0.5:
        raise Trouble(f"over before it could be measured: {before} of {count} ran at once")
    if not whole:
        count = max(count, len(records.seen))
    return {
        "rate": done / seconds,
        "store_cpu_us": store / max(done, 1) * 1e6,
        "worker_cpu_us": worker / max(done, 1) * 1e6,
        "worker_mb": memory,
        "jobs": count,
        "ran": len(records.firsts()),
        "twice": records.twice(),
        "unfinished": 0.0 if whole else 1.0,
    }


@contextlib.contextmanager
def _old_transaction(arena: Arena) -> Iterator[None]:
    """Somebody's repeatable read transaction, which keeps dead rows from being removed."""
    arena.refresh()
    ready, over = threading.Event(), threading.Event()

    async def keep() -> None:
        connection = await asyncpg.connect(arena.ground.url_of(arena.database))
        await connection.execute("begin isolation level repeatable read; select txid_current()")
        ready.set()
        await asyncio.to_thread(over.wait)
        await connection.close()

    thread = threading.Thread(target=lambda: asyncio.run(keep()))
    thread.start()
    ready.wait(30)
    arena.occupied = True
    try:
        yield
    finally:
        arena.occupied = False
        over.set()
        thread.join()


# -- submitting


def submit_single(arena: Arena, size: Size) -> Stats:
    return _submitted(arena, int(arena.peer.single_pace * size.seconds), "single")


def submit_bulk(arena: Arena, size: Size) -> Stats:
    return _submitted(arena, int(arena.peer.bulk_pace * size.seconds), "bulk")


def _submitted(arena: Arena, count: int, how: str) -> Stats:
    arena.refresh()
    before = arena.store_cpu()
    told = arena.call("submit", count=count, how=how, task="noop")
    store = arena.store_cpu() - before
    if arena.left() != count:
        raise Trouble(f"{count} were submitted, {arena.left()} are there")
    return {
        "rate": count / told["seconds"],
        "store_cpu_us": store / count * 1e6,
        "client_cpu_us": told.get("cpu", 0.0) / count * 1e6,
        "jobs": count,
    }


# -- failures and size


def recovery(arena: Arena, size: Size) -> Stats:
    """Seconds from `kill -9` of a worker that holds many jobs until another has started all of them."""
    arena.refresh()
    count = size.held_jobs
    preload(arena, "hold", count)
    started = arena.records()
    with arena.working(processes=1, task="hold", hold=3_600, slots=count):
        if not wait_until(lambda: started.read() >= count or arena.check_alive(), 60):
            raise Trouble(f"only {started.read()} of {count} were started at once")
        killed = time.time()
        arena.kill_workers()
    again = arena.records()
    again.read()
    held_before = len(again.seen)
    with arena.working(processes=1, task="hold", hold=0.0, slots=100):
        wait_until(
            lambda: again.read() >= held_before + count or arena.check_alive(), size.patience, 0.05
        )
    later = {number: at for number, at in again.seen if at > killed}
    if len(later) < count:
        raise Trouble(f"{len(later)} of {count} within {size.patience:g} s")
    return {"seconds": max(later.values()) - killed, "jobs": count, "ran": len(later)}


def storage(arena: Arena, size: Size) -> Stats:
    """Bytes of a stored future job, and a worker's memory beside them."""
    arena.refresh()
    count = min(arena.peer.limits.get("storage", size.stored), size.stored)
    before = arena.stored_bytes()
    arena.call("submit", count=count, how="bulk", task="noop", due=time.time() + 86_400, spread=0.0)
    per_job = (arena.stored_bytes() - before) / count
    with arena.working(processes=1):
        time.sleep(6)
        arena.check_alive()
        memory = arena.worker_memory()
    return {"mb_per_million": per_job, "worker_mb": memory, "jobs": count}


def growth(arena: Arena, size: Size) -> Stats:
    """No-ops a second beside few and beside very many stored future jobs."""
    figures: Stats = {}
    for stored in size.growth:
        arena.refresh()
        for start in range(0, stored, 1_000_000):
            arena.call(
                "submit", count=min(1_000_000, stored - start), how="bulk", task="noop",
                due=time.time() + 86_400, spread=3_600.0, first=WARM,
            )  # fmt: skip
        arena.ground.sql("vacuum analyze", "checkpoint", database=arena.database)
        count = int(arena.peer.pace * size.seconds)
        arena.call("submit", count=count, how="bulk", task="noop")
        figures[f"rate_{stored}"] = _drain_beside(arena, count, stored, size)["rate"]
    few, many = (figures[f"rate_{stored}"] for stored in (size.growth[0], size.growth[-1]))
    return {**figures, "ratio": many / few}


def _drain_beside(arena: Arena, count: int, stored: int, size: Size) -> Stats:
    records = arena.records()
    with arena.working():
        if not wait_until(lambda: records.read() or arena.check_alive(), 60, 0.005):
            raise Trouble("no job was started within a minute")
        began, before = time.perf_counter(), len(records.seen)
        wait_until(lambda: records.read() >= count, size.patience)
        return {"rate": (len(records.seen) - before) / (time.perf_counter() - began)}


WORKLOADS = [
    Workload("noop_async", "No-op jobs, coroutines", noop_async, "jobs/s", "rate"),
    Workload("noop_sync", "No-op jobs, plain functions", noop_sync, "jobs/s", "rate"),
    Workload("hold_5ms", "5 ms jobs on 100 slots", hold_5ms, "jobs/s", "rate"),
    Workload("held", "No-op jobs, a transaction held open", held, "jobs/s", "rate"),
    Workload("submit_single", "Submits one by one, one client", submit_single, "jobs/s", "rate"),
    Workload("submit_bulk", "Submits in bulk, one client", submit_bulk, "jobs/s", "rate"),
    Workload("pick_up", "Pick-up on idle workers, p99", pick_up, "ms", "p99", False),
    Workload("herd", "100,000 due within one second, lag p99", herd, "ms", "p99", False, "full"),
    Workload(
        "million", "A million due within one second", million, "ms", "last", False, "full", alone=True,
    ),
    Workload(
        "cron_minute", "10,000 schedules of every minute, last start", cron_minute, "ms", "last",
        False, "full",
    ),
    Workload(
        "cron_second", "1,000 schedules of every second, lag p99", cron_second, "ms", "p99",
        False, "full",
    ),
    Workload(
        "recovery", "kill -9 of a worker with 1,000 jobs, until all run again", recovery, "s",
        "seconds", False, "full",
    ),
    Workload(
        "storage", "Stored future jobs, per million", storage, "MB", "mb_per_million", False,
        "full",
    ),
    Workload(
        "growth", "No-ops beside 10 million stored, of those beside 10 thousand", growth, "", "ratio",
        True, "growth", alone=True,
    ),
]  # fmt: skip

BY_NAME = {workload.name: workload for workload in WORKLOADS}
