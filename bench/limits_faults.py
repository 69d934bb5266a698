"""Cases of `bench.limits` in which nodes are killed, stopped and cut off: limits that neither are
exceeded nor leak, and how soon a place is free again."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from bench.ground import Ground, moments
from bench.limits_app import declare
from bench.limits_ground import Figures, Place, Programs, Size, place

_QUEUE_LIMIT, _KEY_LIMIT, _KEYS = 24, 3, 10
_KEYED = 4_000_000  # the first number of jobs with keys
_ROOM = 100_000  # numbers for each key
_HELD = 8_000_000  # the first number of jobs that take all places at the end
_LEASE = 3.0
_QUIET = 2.0  # seconds between two faults


@dataclass
class _Nodes:
    """Four nodes, and when which of them did not count."""

    programs: Programs
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    away: list[tuple[int, float, float]] = field(default_factory=list)  # process, from, until
    faults: int = 0

    def start(self) -> None:
        self.running.append(self.programs.start("worker,scheduler"))

    async def trouble(self, made: Place, random: Random) -> None:
        """Kill one, stop one for longer than its lease, or cut connections."""
        victim = random.choice(self.running)
        self.faults += 1
        if self.faults % 3 == 1:
            self.away.append((victim.pid, self.programs.kill(victim), float("inf")))
            self.running.remove(victim)
            self.start()
        elif self.faults % 3 == 2:
            began = time.time()
            victim.send_signal(signal.SIGSTOP)
            await asyncio.sleep(_LEASE + 2)
            victim.send_signal(signal.SIGCONT)
            self.away.append((victim.pid, began, time.time() + 0.2))
        else:
            await made.value(
                "select count(pg_terminate_backend(pid)) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid() and random() < 0.3"
            )


async def chaos(ground: Ground, size: Size) -> Figures:
    """Jobs under a limit of their queue or of their keys, with faults all the time.

    Counted are: the most that ran above a limit, of nodes whose lease lasts; places that can't be used
    at the end; jobs that did not run."""
    keyed = size.chaos_jobs // 20
    plain = size.chaos_jobs - keyed
    async with place(ground, "chaos") as made:
        task = declare(made.app)
        await made.app.migrate()
        await made.app.queues.set_limits("limited", concurrency=_QUEUE_LIMIT)
        await made.app.queues.set_limits("keyed", concurrency_per_key=_KEY_LIMIT)
        await _submit(task.options(queue="limited"), 0, plain, 0.004)
        for key in range(_KEYS):
            own = task.options(queue="keyed", concurrency_key=str(key))
            await _submit(own, _KEYED + key * _ROOM, keyed // _KEYS, 0.02)
        folder = ground.folder / made.database
        with Programs(made.url, folder, heartbeat=1, concurrency=20, grace=2) as programs:
            nodes = _Nodes(programs)
            for _ in range(4):
                nodes.start()
            random = Random(16)
            while await made.value("select exists (select from rota.present)"):
                await asyncio.sleep(_QUIET)
                await nodes.trouble(made, random)
            usable = await _usable(task, programs)
        starts = programs.records("started")
        starts.read()
        over = _over(folder, nodes.away)
    ran = len([number for number in starts.firsts() if number < _HELD])
    return {
        "jobs": plain + keyed // _KEYS * _KEYS, "over": over,
        "leaked": _QUEUE_LIMIT + _KEY_LIMIT * _KEYS - usable,
        "lost": plain + keyed // _KEYS * _KEYS - ran, "faults": nodes.faults,
        "again": starts.twice(),
    }  # fmt: skip


async def _submit(task: Any, first: int, count: int, seconds: float) -> None:
    for start in range(first, first + count, 10_000):
        end = min(start + 10_000, first + count)
        await task.submit_many([(number, seconds) for number in range(start, end)])


async def _usable(task: Any, programs: Programs) -> int:
    """Return how many places can be used at a time when nothing is broken any more."""
    await asyncio.sleep(_LEASE + 2)
    await _submit(task.options(queue="limited"), _HELD, _QUEUE_LIMIT * 2, 20.0)
    for key in range(_KEYS):
        own = task.options(queue="keyed", concurrency_key=str(key))
        await _submit(own, _HELD + _KEYED + key * _ROOM, _KEY_LIMIT * 2, 20.0)
    starts = programs.records("started")
    end = time.monotonic() + 15
    running = 0
    while time.monotonic() < end and running < _QUEUE_LIMIT + _KEY_LIMIT * _KEYS:
        await asyncio.sleep(0.2)
        starts.read()
        running = len([number for number in starts.firsts() if number >= _HELD])
    return running


def _over(folder: Path, away: list[tuple[int, float, float]]) -> int:
    """Return by how many a limit was exceeded, at most, by those whose lease lasted."""
    changes: dict[int, list[tuple[float, int]]] = {}
    for path in folder.glob("started-*"):
        process = int(path.name.partition("-")[2])
        gone = [(since, until) for who, since, until in away if who == process]
        for number, began, ended in _runs(folder, process):
            # What a node began before it was gone counts until then, and nothing while it is gone.
            until = min(
                [since for since, back in gone if began < back and ended > since], default=ended
            )
            if until > began:
                of_key = number % _HELD - _KEYED
                limit = of_key // _ROOM if of_key >= 0 else -1
                changes.setdefault(limit, []).extend([(began, 1), (until, -1)])
    worst = 0
    for limit, found in changes.items():
        running = most = 0
        for _, change in sorted(found):
            running += change
            most = max(most, running)
        worst = max(worst, most - (_QUEUE_LIMIT if limit < 0 else _KEY_LIMIT))
    return worst


def _runs(folder: Path, process: int) -> Iterator[tuple[int, float, float]]:
    """What ran in a process: its number, and from when until when."""
    ends: dict[int, deque[float]] = defaultdict(deque)
    for number, moment in moments(folder / f"ended-{process}"):
        ends[number].append(moment)
    for number, moment in moments(folder / f"started-{process}"):
        yield number, moment, ends[number].popleft() if ends[number] else float("inf")


# -- a place whose holder was killed


async def killed(ground: Ground, size: Size) -> Figures:
    """Seconds from kill -9 of who holds the only place to the next start, less the lease.

    Of a place under a limit of a queue, and of one under a limit of a key."""
    late: list[float] = []
    beats = size.lease / 3
    for kind in ("queue", "key") * size.kills:
        async with place(ground, f"killed_{kind}") as made:
            task = declare(made.app)
            await made.app.migrate()
            if kind == "queue":
                await made.app.queues.set_limits("default", concurrency=1)
            else:
                await made.app.queues.set_limits("default", concurrency_per_key=1)
                task = task.options(concurrency_key="one")
            with Programs(
                made.url, ground.folder / made.database, heartbeat=beats, grace=0.5
            ) as programs:
                holder = programs.start("worker")
                await task.submit(1, 1_000.0)
                await _started(programs, 1)
                programs.start("worker,scheduler")
                await task.submit(2, 0.0)  # one of the two starts next
                while await made.value("select count(*) from rota.node where state = 'live'") < 2:
                    await asyncio.sleep(0.05)
                await asyncio.sleep(1.0)
                moment = programs.kill(holder)
                late.append(await _started(programs, 2) - moment - size.lease)
    return {"late": max(late), "middle": sorted(late)[len(late) // 2], "lease": size.lease}


async def _started(programs: Programs, count: int) -> float:
    """Wait for so many starts. Return the moment of the last."""
    starts = programs.records("started")
    async with asyncio.timeout(60):
        while starts.read() < count:
            await asyncio.sleep(0.02)
    return max(moment for _, moment in starts.seen)
