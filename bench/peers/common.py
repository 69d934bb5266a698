"""What the adapters in Python share. Only the standard library: it is imported in every environment.

Records. Each process writes to a file of its own in BENCH_RECORDS: 12 bytes per event, the job's number
plus one (so that zero is "nothing yet") and the moment. Mapped into memory: a record costs a third of a
microsecond, survives `kill -9`, and is seen by the reader at once.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import mmap
import os
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

_RECORD = struct.Struct("<Id")
_ROOM = 4_000_000  # records; the file is sparse
MOMENTS = 100
FULL = 1_000_000  # from this number on, jobs of `keyed` run until the end

DATABASE_URL = os.environ.get("BENCH_DATABASE_URL", "")
REDIS_URL = os.environ.get("BENCH_REDIS_URL", "")


class Recorder:
    """Notes that something happened to a job, from any thread, in any process forked from here."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._map: mmap.mmap | None = None
        self._opening = threading.Lock()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._map = None
        self._opening = threading.Lock()

    def _open(self) -> mmap.mmap:
        path = Path(os.environ["BENCH_RECORDS"]) / f"{self._name}-{os.getpid()}"
        with self._opening:
            if self._map is not None:
                return self._map
            return self._made(path)

    def _made(self, path: Path) -> mmap.mmap:
        with path.open("w+b") as file:
            file.truncate(_ROOM * _RECORD.size)
            self._slots = itertools.count()
            self._map = mmap.mmap(file.fileno(), 0)
            return self._map

    def __call__(self, number: int) -> None:
        place = self._map or self._open()
        _RECORD.pack_into(place, next(self._slots) * _RECORD.size, number + 1, time.time())


hold = SimpleNamespace(seconds=0.0)  # how long the task `hold` sleeps
started = Recorder("started")
sent = Recorder("sent")


def batches(wish: dict[str, Any], size: int = 10_000) -> Iterator[tuple[float | None, range]]:
    """The jobs to submit together: (when they are due, their numbers).

    What is spread over a second comes as a hundred moments, with a hundredth of the jobs each: bulk
    calls take one due moment for all.
    """
    first, count, due = wish.get("first", 0), wish["count"], wish.get("due")
    end = first + count
    if due is None or not wish.get("spread"):
        yield from ((due, range(at, min(at + size, end))) for at in range(first, end, size))
        return
    for step in range(MOMENTS):
        low, high = (first + count * part // MOMENTS for part in (step, step + 1))
        if low < high:
            yield due + wish["spread"] * step / MOMENTS, range(low, high)


def numbers(wish: dict[str, Any]) -> range:
    first = wish.get("first", 0)
    return range(first, first + wish["count"])


CHAIN = 10_000  # numbers of a chain's steps: its own, and those that follow
JOIN = 2_000_000  # the number of what comes after a group


def chains(wish: dict[str, Any]) -> Iterator[int]:
    """The first numbers of chains that begin one after the other, each moment recorded."""
    for number in range(wish["count"]):
        sent(number * CHAIN)
        yield number * CHAIN


async def at_a_pace(wish: dict[str, Any], submit: Callable[[int], Any]) -> None:
    """Submits each job on its own, so many a second, having noted the moment."""
    pause = 1 / wish["rate"]
    for number in numbers(wish):
        sent(number)
        answer = submit(number)
        if answer is not None and hasattr(answer, "__await__"):
            await answer
        await asyncio.sleep(pause)


async def until_told() -> None:
    """Until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()


def main(**commands: Callable[[dict[str, Any]], Any]) -> None:
    name = sys.argv[1]
    wish: dict[str, Any] = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    if name not in commands:
        sys.exit(f"no command {name!r}; there are: {', '.join(commands)}")
    began = time.perf_counter()
    answer = commands[name](wish)
    if asyncio.iscoroutine(answer):
        answer = asyncio.run(answer)
    told = {"seconds": time.perf_counter() - began, **(answer or {})}
    print(json.dumps(told), flush=True)


class Stopwatch:
    """What only the measured part of a command took: imports and connecting are left out."""

    def __enter__(self) -> Self:
        self._began, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._began
        self.cpu = time.process_time() - self._cpu

    def answer(self) -> dict[str, float]:
        return {"seconds": self.seconds, "cpu": self.cpu}
