"""Every mutant on one seed after the other, until it is caught.

The seed that caught a mutant the last time is tried first: `caught.json` keeps it. Most changes of the
code leave it right, and then a run of all mutants takes an hour instead of a night.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Iterator
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path

import msgspec

from proof.mutants import MUTANTS
from proof.simulation.mutant import Mutant
from proof.simulation.swarm import NOT_A_VERDICT, fork_seed
from proof.simulation.template import SimServer

KEPT = Path(__file__).with_name("caught.json")


class Caught(msgspec.Struct):
    mutant: str
    seed: int  # 0: it survived them all
    tried: int
    by: str


class Sound:
    """Which seeds the unchanged code passes: elsewhere an objection says nothing of a mutant."""

    def __init__(self, server: SimServer) -> None:
        self._server = server
        self._known: dict[tuple[int, frozenset[str]], list[str]] = {}

    def objections(self, seed: int, moves: frozenset[str]) -> list[str]:
        if (seed, moves) not in self._known:
            result = fork_seed(self._server, seed, moves=moves)
            self._known[seed, moves] = result.violations
        return self._known[seed, moves]


def hunt(server: SimServer, mutant: Mutant, seeds: list[int], sound: Sound) -> Caught:
    unsound = ""
    for tried, seed in enumerate(seeds, 1):
        result = fork_seed(server, seed, mutant=mutant, moves=mutant.moves)
        if broken := [v for v in result.violations if v.startswith(NOT_A_VERDICT)]:
            return Caught(mutant.name, 0, tried, f"nothing, it is out of date: {broken[0]}")
        if result.violations:
            if objections := sound.objections(seed, mutant.moves):
                unsound = f"nothing: the unchanged code breaks seed {seed}: {objections[0]}"
                continue
            return Caught(mutant.name, seed, tried, _rule_of(result.violations[0]))
    return Caught(mutant.name, 0, len(seeds), unsound)


def order(first: int, count: int, kept: int | None) -> list[int]:
    """Return the seeds to try: the one that is known to catch the mutant, then the others in turn."""
    return [*([kept] if kept else []), *(s for s in range(first, first + count) if s != kept)]


def read_kept() -> dict[str, int]:
    return msgspec.json.decode(KEPT.read_bytes(), type=dict[str, int]) if KEPT.exists() else {}


def keep(found: list[Caught]) -> None:
    """Keep the seeds of those that were caught, and of no mutant that is gone."""
    names = [mutant.name for mutant in MUTANTS]
    known = read_kept() | {caught.mutant: caught.seed for caught in found if caught.seed}
    rows = {name: known[name] for name in names if name in known}
    KEPT.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=2) + b"\n")


def _rule_of(violation: str) -> str:
    """Of the phase after healing, only that it was that."""
    rule = violation.partition(": ")[0]
    return "everything ends after healing" if "have not ended" in rule else rule


def _start_worker(seeds: dict[str, list[int]], opened: list[Connection]) -> Connection:
    ours, theirs = Pipe()
    opened.append(ours)
    if os.fork() == 0:
        for pipe in opened:
            pipe.close()
        with SimServer() as server:
            sound = Sound(server)
            while (place := _receive(theirs)) is not None:
                caught = hunt(server, MUTANTS[place], seeds[MUTANTS[place].name], sound)
                theirs.send(msgspec.json.encode(caught))
        os._exit(0)
    theirs.close()
    return ours


def _receive(pipe: Connection) -> int | None:
    try:
        place: int = pipe.recv()
    except EOFError:
        return None
    return place


def run(chosen: list[int], seeds: dict[str, list[int]], jobs: int) -> Iterator[Caught]:
    opened: list[Connection] = []
    workers = [_start_worker(seeds, opened) for _ in range(jobs)]
    todo = iter(chosen)
    busy: list[Connection] = []
    for pipe in workers:
        if (place := next(todo, None)) is not None:
            pipe.send(place)
            busy.append(pipe)
    while busy:
        for pipe in wait(busy):
            assert isinstance(pipe, Connection)
            yield msgspec.json.decode(pipe.recv(), type=Caught)
            if (place := next(todo, None)) is not None:
                pipe.send(place)
            else:
                busy.remove(pipe)
    for pipe in workers:
        pipe.close()


def _line(caught: Caught) -> str:
    return f"| {caught.mutant} | {caught.seed or 'SURVIVED'} | {caught.tried} | {caught.by} |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m proof.mutants", description=__doc__)
    parser.add_argument("--seeds", type=int, default=60, help="give up after so many")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="", help="those whose name contains this")
    parser.add_argument("--anew", action="store_true", help="ignore the seeds that are known to do")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    chosen = [place for place, mutant in enumerate(MUTANTS) if arguments.only in mutant.name]
    kept = {} if arguments.anew else read_kept()
    seeds = {
        mutant.name: order(arguments.first, arguments.seeds, kept.get(mutant.name))
        for mutant in MUTANTS
    }
    print("| mutant | seed | tried | caught by |\n| --- | --- | --- | --- |")
    found = []
    for caught in run(chosen, seeds, arguments.jobs):
        print(_line(caught), flush=True)
        found.append(caught)
        keep(found)
    survivors = [caught.mutant for caught in found if not caught.seed]
    print(f"{len(found)} mutants, {len(survivors)} survived: {', '.join(survivors) or 'none'}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
