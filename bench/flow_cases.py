"""What is measured of workflows and durable functions. Each case gives named figures of one round.

Handlers record their end (a no-op's start is its end), and clients the moment before they ask for a
start, so that all are timed by the same hands: how a client learns of the end of a run plays no part.
What is started first in a worker warms it up, and isn't counted.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import asyncpg

from bench.ground import Arena, Trouble, wait_until
from bench.lags import pick_up
from bench.peers.common import CHAIN, JOIN
from bench.sizes import Size, Stats
from bench.workloads import noop_async

_LONGEST = 1_200  # seconds: a chord of 10,000 takes minutes


class FlowSize:
    """How much: a quick look, or a measurement."""

    def __init__(self, quick: bool) -> None:
        self.chains = 2 if quick else 6  # the first warms up
        self.steps = 40
        self.functions, self.function_steps = 100, 20
        self.function_rounds = 3 if quick else 6
        self.alone = 60 if quick else 500  # steps of one function
        self.width = 500 if quick else 10_000
        self.joins = 4 if quick else 21
        self.members = 20_000 if quick else 1_000_000
        self.sleepers = 200 if quick else 10_000
        # Seconds of which the processor time is taken: a minute, in which all services look.
        self.rest = 3.0 if quick else 60.0
        self.patience = 120.0
        self.plain = Size(0.3, 20) if quick else Size()


# -- a chain of steps


def chain(arena: Arena, size: FlowSize, hold: float, how: str = "function") -> Stats:
    arena.refresh()
    ended = arena.records()
    with arena.working(processes=1, hold=hold):
        arena.call("chain", count=size.chains, steps=size.steps, how=how, hold=hold)
        ended.read()
    begun = _sent(arena)
    times = ended.firsts()
    took = [times[number + size.steps - 1] - moment for number, moment in begun]
    if len(times) != size.chains * size.steps:
        raise Trouble(f"{len(times)} of {size.chains * size.steps} steps ran")
    return {"ms": statistics.median(took[1:]) * 1000, "steps": size.steps}


def _sent(arena: Arena) -> list[tuple[int, float]]:
    sent = arena.records("sent")
    sent.read()
    return sorted(sent.seen, key=lambda one: one[1])


# -- many functions


def functions(arena: Arena, size: FlowSize) -> Stats:
    """Steps a second of functions started in one transaction: from before that to the last step. One
    client does so several times: the first warms up client, workers and their connections, and of the
    others the median counts."""
    arena.refresh()
    steps = size.functions * size.function_steps
    ended, sent = arena.records(), arena.records("sent")
    wanted, rest = steps * size.function_rounds, steps * (size.function_rounds - 1)
    with arena.working(), ThreadPoolExecutor(1) as pool:
        wish = {
            "count": size.functions,
            "steps": size.function_steps,
            "rounds": size.function_rounds,
        }
        calling = pool.submit(arena.call, "functions", **wish)
        wait_until(lambda: ended.read() >= steps or calling.done(), _LONGEST, 0.005)
        store, worker = arena.store_cpu(), arena.worker_cpu()
        calling.result()
        store, worker = arena.store_cpu() - store, arena.worker_cpu() - worker
    if ended.read() != wanted:
        raise Trouble(f"{len(ended.seen)} steps ran, {wanted} were to run")
    sent.read()
    moments, ends = sorted(at for _, at in sent.seen), sorted(at for _, at in ended.seen)
    seconds = [  # a round begins when the one before it has ended
        ends[(number + 1) * steps - 1] - moments[number * size.functions]
        for number in range(1, size.function_rounds)
    ]
    return {
        "rate": steps / statistics.median(seconds), "store_cpu_us": store / rest * 1e6,
        "worker_cpu_us": worker / rest * 1e6, "steps": steps,
    }  # fmt: skip


# -- one function, beside bare commits


def one_step(arena: Arena, size: FlowSize) -> Stats:
    """The time of one step of one function, and of one bare commit of a row, in turns."""
    arena.refresh()
    commits = _commits(arena, size.alone)
    with arena.working(processes=1):
        arena.call("chain", count=2, steps=size.alone, how="function")
        ended = arena.records()
        ended.read()
    commits += _commits(arena, size.alone)
    moments = sorted(moment for number, moment in ended.firsts().items() if number >= CHAIN)
    gaps = [(later - earlier) * 1000 for earlier, later in itertools.pairwise(moments)]
    step, commit = statistics.median(gaps), statistics.median(commits)
    return {"p50": step, "commit_p50": commit, "ratio": step / commit, "steps": size.alone}


def _commits(arena: Arena, count: int) -> list[float]:
    """Milliseconds of single inserts, each with its commit, from one connection."""

    async def insert() -> list[float]:
        connection = await asyncpg.connect(arena.ground.url_of(arena.database))
        try:
            await connection.execute("create table if not exists public.one_row (number int)")
            statement = await connection.prepare("insert into public.one_row values ($1)")
            took = []
            for number in range(count):
                began = time.perf_counter()
                await statement.fetch(number)
                took.append((time.perf_counter() - began) * 1000)
            return took
        finally:
            await connection.close()

    return asyncio.run(insert())


# -- fan-out and fan-in


def fan(arena: Arena, size: FlowSize) -> Stats:
    """Steps a second of a group and the step after it: from before the start to that step. A group
    before it, in the same client, warms up."""
    arena.refresh()
    ended, sent = arena.records(), arena.records("sent")
    with arena.working(), ThreadPoolExecutor(1) as pool:
        calling = pool.submit(arena.call, "fan", seconds=_LONGEST, count=1, width=size.width)
        wait_until(lambda: sent.read() == 2 or calling.done(), _LONGEST, 0.002)
        store, worker = arena.store_cpu(), arena.worker_cpu()
        calling.result()
        store, worker = arena.store_cpu() - store, arena.worker_cpu() - worker
    sent.read()
    began = max(moment for _, moment in sent.seen)
    ended.read()
    seen = [one for one in ended.seen if one[1] >= began]
    if len(seen) != size.width + 1:
        raise Trouble(f"{len(seen)} of {size.width + 1} ran")
    join = max(moment for number, moment in seen if number == JOIN)
    last = max(moment for number, moment in seen if number != JOIN)
    return {
        "rate": (size.width + 1) / (join - began),
        "join_ms": (join - last) * 1000,
        "store_cpu_us": store / size.width * 1e6,
        "worker_cpu_us": worker / size.width * 1e6,
        "steps": size.width + 1,
    }


def members(arena: Arena, size: FlowSize) -> Stats:
    """Members a second of a map over a generator: from before the call to the end of the run. The
    memory is the most that the submitter had, and the workers after the last member."""
    arena.refresh()
    ended = arena.records()
    with arena.working():
        arena.call("members", count=1_000)  # warms up
        before = ended.read()
        store, worker = arena.store_cpu(), arena.worker_cpu()
        answer = arena.call("members", count=size.members)
        store, worker = arena.store_cpu() - store, arena.worker_cpu() - worker
        memory = arena.worker_memory()
        ran = ended.read() - before
    if ran != size.members or answer["succeeded"] != size.members:
        raise Trouble(f"{ran} of {size.members} members ran")
    moment = _sent(arena)[-1][1]
    return {
        "rate": size.members / (answer["moment"] - moment),
        "store_cpu_us": store / size.members * 1e6,
        "worker_cpu_us": worker / size.members * 1e6,
        "submitter_mb": answer["memory_mb"], "workers_mb": memory, "steps": size.members,
    }  # fmt: skip


def plain(arena: Arena, size: FlowSize) -> Stats:
    """No-op jobs a second, without a workflow."""
    return noop_async(arena, size.plain)


def join(arena: Arena, plain: Arena, size: FlowSize) -> Stats:
    """Milliseconds from the end of the last of ten steps to the start of the step after them, and of
    pick-up on idle workers."""
    idle = pick_up(plain, size.plain)["p50"]
    arena.refresh()
    ended = arena.records()
    with arena.working():
        arena.call("fan", count=size.joins - 1, width=10)
        ended.read()
    seen = sorted(ended.seen, key=lambda one: one[1])
    lags = [
        (seen[at][1] - seen[at - 1][1]) * 1000 for at in range(len(seen)) if seen[at][0] == JOIN
    ]
    if len(lags) != size.joins:
        raise Trouble(f"{len(lags)} of {size.joins} groups were joined")
    p50 = statistics.median(lags[1:])
    return {"p50": p50, "idle_p50": idle, "ratio": p50 / idle, "steps": size.joins}


# -- at rest, and after a crash


def sleeping(arena: Arena, size: FlowSize) -> Stats:
    """Processor time of PostgreSQL in a while, with functions that sleep and before there were any."""
    arena.refresh()
    with arena.working():
        arena.call("chain", count=1, steps=5, how="function")
        idle = _at_rest(arena, size)
        arena.call("sleepers", count=size.sleepers)
        asleep = "select count(*) from rota.run where suspended"
        if not wait_until(
            lambda: arena.ground.sql(asleep, database=arena.database) >= size.sleepers, 300, 0.5
        ):
            raise Trouble("not all functions went to sleep")
        asleep_cpu = _at_rest(arena, size)
    return {
        "ratio": asleep_cpu / idle, "idle_ms": idle * 1000, "ms": asleep_cpu * 1000,
        "steps": size.sleepers,
    }  # fmt: skip


def _at_rest(arena: Arena, size: FlowSize) -> float:
    """Seconds of processor time each second, once PostgreSQL has tidied up."""
    arena.ground.sql("vacuum analyze", "checkpoint", database=arena.database)
    time.sleep(min(size.rest / 2, 10))
    before = arena.ground.server_cpu()
    time.sleep(size.rest)
    return (arena.ground.server_cpu() - before) / size.rest


def killed(arena: Arena, size: FlowSize, lease: float) -> Stats:
    """Seconds from `kill -9` of the worker inside a step until the step after it runs on another."""
    arena.refresh()
    ended = arena.records()
    with arena.working(processes=1, hold=3_600.0):
        arena.call("interrupt")
        if not wait_until(lambda: ended.read() >= 2 or arena.check_alive(), 60):
            raise Trouble("the function did not come to its second step")
        with arena.working(processes=1, hold=0.0):
            time.sleep(2.0)  # until the other is up
            moment = time.time()
            arena.kill_workers(1)
            if not wait_until(lambda: ended.read() >= 4, size.patience, 0.05):
                raise Trouble(f"the next step did not run within {size.patience:g} s")
    seconds = max(at for number, at in ended.seen if number == 2) - moment
    return {"seconds": seconds, "lease": lease, "ratio": seconds / lease, "steps": 1}
