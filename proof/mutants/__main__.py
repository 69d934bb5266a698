"""Every mutant on one seed after the other, until it is caught."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from multiprocessing.connection import Connection, Pipe, wait

import msgspec

from proof.mutants import MUTANTS
from proof.simulation.mutant import Mutant
from proof.simulation.swarm import NOT_A_VERDICT, fork_seed
from proof.simulation.template import SimServer


class Caught(msgspec.Struct):
    mutant: str
    seeds: int  # how many it took; 0: it survived them all
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


def hunt(server: SimServer, mutant: Mutant, first: int, seeds: int, sound: Sound) -> Caught:
    unsound = ""
    for count in range(1, seeds + 1):
        seed = first + count - 1
        result = fork_seed(server, seed, mutant=mutant, moves=mutant.moves)
        if broken := [v for v in result.violations if v.startswith(NOT_A_VERDICT)]:
            return Caught(mutant.name, 0, f"nothing, it is out of date: {broken[0]}")
        if result.violations:
            if objections := sound.objections(seed, mutant.moves):
                unsound = f"nothing: the unchanged code breaks seed {seed}: {objections[0]}"
                continue
            return Caught(mutant.name, count, _rule_of(result.violations[0]))
    return Caught(mutant.name, 0, unsound)


def _rule_of(violation: str) -> str:
    """Of the phase after healing, only that it was that."""
    rule = violation.partition(": ")[0]
    return "everything ends after healing" if "have not ended" in rule else rule


def _start_worker(first: int, seeds: int, opened: list[Connection]) -> Connection:
    ours, theirs = Pipe()
    opened.append(ours)
    if os.fork() == 0:
        for pipe in opened:
            pipe.close()
        with SimServer() as server:
            sound = Sound(server)
            while (place := _receive(theirs)) is not None:
                caught = hunt(server, MUTANTS[place], first, seeds, sound)
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


def run(chosen: list[int], first: int, seeds: int, jobs: int) -> list[Caught]:
    opened: list[Connection] = []
    workers = [_start_worker(first, seeds, opened) for _ in range(jobs)]
    todo = iter(chosen)
    busy: list[Connection] = []
    found: list[Caught] = []
    for pipe in workers:
        if (place := next(todo, None)) is not None:
            pipe.send(place)
            busy.append(pipe)
    while busy:
        for pipe in wait(busy):
            assert isinstance(pipe, Connection)
            found.append(msgspec.json.decode(pipe.recv(), type=Caught))
            print(_line(found[-1]), flush=True)
            if (place := next(todo, None)) is not None:
                pipe.send(place)
            else:
                busy.remove(pipe)
    for pipe in workers:
        pipe.close()
    return found


def _line(caught: Caught) -> str:
    return f"| {caught.mutant} | {caught.seeds or 'SURVIVED'} | {caught.by} |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m proof.mutants", description=__doc__)
    parser.add_argument("--seeds", type=int, default=60, help="give up after so many")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="", help="those whose name contains this")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    chosen = [place for place, mutant in enumerate(MUTANTS) if arguments.only in mutant.name]
    print("| mutant | seeds | caught by |\n| --- | --- | --- |")
    found = run(chosen, arguments.first, arguments.seeds, arguments.jobs)
    survivors = [caught.mutant for caught in found if not caught.seeds]
    print(f"{len(found)} mutants, {len(survivors)} survived: {', '.join(survivors) or 'none'}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
