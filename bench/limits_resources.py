"""The case of `bench.limits` about resources: what runs on a node at a time, and how long the largest
job waits among small ones that never end."""

from __future__ import annotations

import asyncio
import itertools
import time
from contextlib import AsyncExitStack
from typing import Any

from bench.ground import Ground
from bench.limits_ground import Figures, Place, Size, place, until
from rota import App, Node

_NODES = {"small": 8, "large": 16}  # gigabytes
_PATIENCE = 3.0
_RUNS = (0.2, 0.5, 1.0)  # seconds that small jobs take
_BACKLOG = 200


class _Machine:
    """A node, what its handlers hold at a time, and when the largest jobs began."""

    def __init__(self, made: Place, name: str, gigabytes: int) -> None:
        self.held = self.most = 0
        self.ran = 0
        self.longest = 0.0
        self.big_at: dict[int, float] = {}
        self.app = App(
            database_url=made.url, node_name=name, processes=1, concurrency=40,
            resource_patience=_PATIENCE, grace=2,
        )  # fmt: skip
        self.node = Node(self.app, ["worker", "scheduler"], resources={"memory": f"{gigabytes}GB"})
        declare(self.app, self)

    async def run(self, gigabytes: int, seconds: float) -> None:
        self.held += gigabytes
        self.most = max(self.most, self.held)
        began = time.monotonic()
        await asyncio.sleep(seconds)
        self.longest = max(self.longest, time.monotonic() - began)
        self.held -= gigabytes
        self.ran += 1


def declare(app: App, machine: _Machine | None) -> tuple[Any, Any]:
    @app.task(resources={"memory": "1GB"})
    async def small(seconds: float) -> None:
        assert machine is not None
        await machine.run(1, seconds)

    @app.task(resources={"memory": "2GB"})
    async def middle(seconds: float) -> None:
        assert machine is not None
        await machine.run(2, seconds)

    @app.task(resources={"memory": "16GB"})
    async def big(number: int) -> None:
        assert machine is not None
        machine.big_at[number] = time.monotonic()
        await machine.run(16, 0.2)

    return (small, middle), big


async def resources(ground: Ground, size: Size) -> Figures:
    """Gigabytes above what a node has, and the longest wait of a job that takes a whole node, while
    small ones wait at all times."""
    async with place(ground, "resources") as made, AsyncExitStack() as stack:
        fillers, big = declare(made.app, None)
        await made.app.migrate()
        machines = {name: _Machine(made, name, its) for name, its in _NODES.items()}
        for machine in machines.values():
            await machine.node.start()
            stack.push_async_callback(machine.app.close)
            stack.push_async_callback(machine.node.stop)
        filling = asyncio.create_task(_fill(fillers, machines))
        try:
            await until(lambda: all(machine.ran for machine in machines.values()))
            waits = [
                await _wait_of(number, big, machines["large"]) for number in range(size.big_jobs)
            ]
        finally:
            filling.cancel()
            await asyncio.wait([filling])
    longest = max(machine.longest for machine in machines.values())
    return {
        "over": max(machine.most - _NODES[name] for name, machine in machines.items()),
        "waited": max(waits), "allowed": _PATIENCE + longest, "longest_run": longest,
        "small_jobs": sum(machine.ran for machine in machines.values()),
        "full": max(machine.most / _NODES[name] for name, machine in machines.items()),
    }  # fmt: skip


async def _wait_of(number: int, big: Any, large: _Machine) -> float:
    began = time.monotonic()
    await big.submit(number)
    await until(lambda: number in large.big_at)
    return large.big_at[number] - began


async def _fill(fillers: tuple[Any, ...], machines: dict[str, _Machine]) -> None:
    """Keep a backlog of small jobs, however many have run."""
    sent = 0
    runs = itertools.cycle(_RUNS)
    while True:
        missing = sum(machine.ran for machine in machines.values()) + _BACKLOG - sent
        for task in fillers if missing > 0 else ():
            await task.submit_many([(next(runs),) for _ in range(missing // 2 + 1)])
            sent += missing // 2 + 1
        await asyncio.sleep(0.1)
