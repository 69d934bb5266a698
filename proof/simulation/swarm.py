"""Many seeds: some processes, each with a PostgreSQL server of its own; a fork for each seed.

What a seed leaves behind in memory (processes that were killed never end) is gone with its fork.
"""

from __future__ import annotations

import itertools
import os
import secrets
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path

import msgspec

from proof.simulation.loop import Standstill
from proof.simulation.moves import DEFAULT
from proof.simulation.mutant import Mutant
from proof.simulation.run import Result, run_seed
from proof.simulation.template import SimServer

NOT_A_VERDICT = "the simulation itself failed"  # how such a violation begins


def fork_seed(
    server: SimServer, seed: int, *, mutant: Mutant | None = None, trace: bool = False,
    folder: Path | None = None, moves: frozenset[str] = DEFAULT,
) -> Result:  # fmt: skip
    """As `run_seed`, in a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            result = run_seed(server, seed, mutant=mutant, trace=trace, folder=folder, moves=moves)
        except Standstill as error:
            result = Result(seed, violations=[str(error)])
        except BaseException:  # noqa: BLE001 - told to the parent
            text = traceback.format_exc()
            result = Result(seed, violations=[f"{NOT_A_VERDICT}: {text}"])
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(msgspec.msgpack.encode(result))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if not answer:
        return Result(seed, violations=[f"the simulation's process died: wait status {status}"])
    return msgspec.msgpack.decode(answer, type=Result)


class Totals:
    """What a swarm has done so far."""

    def __init__(self) -> None:
        self.seeds = 0
        self.failing: list[int] = []
        self.virtual_seconds = 0.0
        self.statements = 0
        self.jobs = 0
        self.starts = 0
        self.faults: Counter[str] = Counter()
        self._begun = time.monotonic()

    def add(self, result: Result) -> None:
        self.seeds += 1
        self.virtual_seconds += result.virtual_seconds
        self.statements += result.statements
        self.jobs += result.jobs
        self.starts += result.starts
        self.faults.update(result.faults)
        if result.violations:
            self.failing.append(result.seed)

    def text(self) -> str:
        minutes = (time.monotonic() - self._begun) / 60
        hours = self.virtual_seconds / 3600
        faults = ", ".join(f"{count} {kind}" for kind, count in self.faults.most_common())
        return (
            f"{self.seeds} seeds, {hours:.2f} simulated hours in {minutes:.1f} minutes "
            f"({hours / minutes:.2f} hours a minute), {self.statements:,} statements, "
            f"{self.jobs:,} jobs, {self.starts:,} starts; faults: {faults or 'none'}; "
            f"{len(self.failing)} seeds with violations"
        )


def run_swarm(
    seeds: Iterable[int], jobs: int, minutes: float | None, mutant: Mutant | None,
    done: Callable[[Result], bool], moves: frozenset[str] = DEFAULT,
) -> None:  # fmt: skip
    """Calls `done` for each seed, in the order in which they end; begins no more once it says False."""
    end = None if minutes is None else time.monotonic() + minutes * 60
    todo = iter(seeds)
    workers = [_start_worker(mutant, moves) for _ in range(jobs)]
    try:
        asked = [pipe for pipe, _ in workers if _ask(pipe, todo, end)]
        while asked:
            for pipe in wait(asked):
                assert isinstance(pipe, Connection)
                if not done(msgspec.msgpack.decode(pipe.recv_bytes(), type=Result)):
                    todo = iter(())
                if not _ask(pipe, todo, end):
                    asked.remove(pipe)
    finally:
        for pipe, _ in workers:
            pipe.close()
        for _, pid in workers:
            os.waitpid(pid, 0)


def _ask(pipe: Connection, todo: Iterator[int], end: float | None) -> bool:
    seed = None if end is not None and time.monotonic() >= end else next(todo, None)
    if seed is not None:
        pipe.send(seed)
    return seed is not None


_pipes: list[Connection] = []


def _start_worker(mutant: Mutant | None, moves: frozenset[str]) -> tuple[Connection, int]:
    ours, theirs = Pipe()
    _pipes.append(ours)
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us, by closing the pipe
        for pipe in _pipes:
            pipe.close()
        try:
            with SimServer() as server:
                while True:
                    try:
                        seed = theirs.recv()
                    except EOFError:
                        break
                    result = fork_seed(server, seed, mutant=mutant, moves=moves)
                    theirs.send_bytes(msgspec.msgpack.encode(result))
        finally:
            os._exit(0)
    theirs.close()
    return ours, pid


def draw_seeds() -> str:
    """Seeds that nobody has run before: a run that only repeats others finds nothing new."""
    return f"{secrets.randbelow(10**9) + 10**6}.."


def parse_seeds(text: str) -> Iterable[int]:
    """``7``, ``1..200`` (both included), or ``1..`` without an end."""
    first, dots, last = text.partition("..")
    if not dots:
        return [int(first)]
    return range(int(first), int(last) + 1) if last else itertools.count(int(first))
