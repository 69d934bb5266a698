"""How many plain functions a second the process runner does, and how soon one is done.

python bench/process_runner.py [SIZE] [JOBS]
"""

from __future__ import annotations

import asyncio
import resource
import statistics
import sys
import time
import uuid
from typing import Any

from rota.config import Settings
from rota.model import Outcome
from rota.runtime.work import Work
from rota.worker.runners.base import NodeParts
from rota.worker.runners.process import ProcessRunner
from rota.worker.runners.reference import AppReference


class Nothing:
    """A stand-in for a task: the runner's own cost is what is measured."""

    takes_context = False

    def call(self, payload: bytes, ctx: object) -> object:
        return None


class App:
    def __init__(self) -> None:
        self.tasks = {"nothing": Nothing()}


app = App()


def works(count: int) -> list[Work]:
    return [Work(uuid.uuid4(), "nothing", b"{}" * 100, 1, 1, 1) for _ in range(count)]


class Bench:
    def __init__(self, size: int) -> None:
        self.left = 0
        self.finished = asyncio.Event()
        reference = AppReference(None, __file__, "app")
        no_desk: Any = None
        self.runner = ProcessRunner(reference, size, NodeParts(Settings(), self._done, no_desk))

    def _done(self, work: Work, outcome: Outcome) -> None:
        self.left -= 1
        if not self.left:
            self.finished.set()

    async def run(self, batch: list[Work]) -> float:
        began = time.perf_counter()
        self.left = len(batch)
        self.finished.clear()
        for work in batch:
            self.runner.run(work)
        await self.finished.wait()
        return time.perf_counter() - began


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def main(size: int = 2, jobs: int = 100_000) -> None:
    bench = Bench(size)
    began = time.perf_counter()
    await bench.runner.start()
    print(f"{size} children ready after {time.perf_counter() - began:.2f} s")
    await bench.run(works(2000))
    batch, before = works(jobs), cpu()
    seconds = await bench.run(batch)
    parent = (cpu() - before) / jobs * 1e6
    print(f"{jobs / seconds:,.0f} jobs a second; {parent:.1f} us of CPU per job in the parent")
    alone = [await bench.run(works(1)) for _ in range(2000)]
    print(f"one alone: {statistics.median(alone) * 1e6:.0f} us from run() to done()")
    await bench.runner.stop()


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:])))
