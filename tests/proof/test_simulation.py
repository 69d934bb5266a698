"""The deterministic simulation: equal seeds are equal runs, and no seed breaks a promise; a bug does.

ROTA_SIM_SEEDS says how many seeds the small swarm runs.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from itertools import dropwhile, takewhile
from types import SimpleNamespace
from typing import Any

import pytest

from proof import mutants
from proof.mutants.__main__ import read_kept
from proof.simulation import loop as loops
from proof.simulation import surroundings, trouble
from proof.simulation.cluster import Cluster
from proof.simulation.held_up import HeldUp
from proof.simulation.moves import MOVES
from proof.simulation.patches import Patches
from proof.simulation.run import _slow_down
from proof.simulation.swarm import draw_seeds, parse_seeds
from proof.simulation.template import SCHEMA
from rota.scheduler import firer, releaser
from rota.store.sql import load_queries
from tests.support.places import ROOT

pytestmark = [
    pytest.mark.timeout(1800),  # a busy machine is no failure
    pytest.mark.skipif(sys.platform == "win32", reason="simulations fork"),
]

_SEEDS = int(os.environ.get("ROTA_SIM_SEEDS", "12"))
_FIRST_SEED = 1000


def start(*arguments: str, hash_seed: str = "0") -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "proof.simulation", *arguments]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip


def simulate(*arguments: str) -> tuple[int, str]:
    process = start(*arguments)
    said, _ = process.communicate()
    return process.returncode, said


def digest_of(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate()
    found = re.search(r"^digest (\w{64})$", said, re.MULTILINE)
    assert found, said
    return found[1]


@pytest.mark.proof
@pytest.mark.parametrize("seed", ["3", "7"])
def test_the_same_seed_is_the_same_run_statement_by_statement(seed: str) -> None:
    # At the same time, so that they also disturb each other.
    runs = [start("--seed", seed, hash_seed=hash_seed) for hash_seed in ("1", "2")]
    one, other = [digest_of(run) for run in runs]
    assert one == other


@pytest.mark.proof
def test_another_seed_is_another_run() -> None:
    runs = [start("--seed", seed) for seed in ("3", "4")]
    one, other = [digest_of(run) for run in runs]
    assert one != other


@pytest.mark.proof
def test_no_seed_of_a_small_swarm_breaks_a_promise() -> None:
    seeds = f"{_FIRST_SEED}..{_FIRST_SEED + _SEEDS - 1}"
    code, said = simulate("--seeds", seeds, "--jobs", "2")
    assert code == 0, said
    assert f"{_SEEDS} seeds" in said


@pytest.mark.proof
@pytest.mark.parametrize("mutant", ["finish-without-guard", "gate-always-open"])
def test_a_bug_is_found_and_its_seed_replays_it(mutant: str) -> None:
    # With the moves that such bugs need: others only make a seed longer.
    moves = ("--moves", "schedules,jobs")
    code, said = simulate("--seeds", "1..60", "--jobs", "2", "--first", "--mutant", mutant, *moves)
    assert code == 1, said
    found = re.search(r"^seed (\d+): \d+ violations, the first: ([^:]+): ", said, re.MULTILINE)
    assert found, said
    seed, rule = found.groups()
    code, replayed = simulate("--seed", seed, "--mutant", mutant, *moves)
    assert code == 1
    assert rule in replayed
    assert "journal: " in replayed  # the history that shows it
    # And it was the bug that broke the promise.
    code, sound = simulate("--seed", seed, *moves)
    assert code == 0, sound


def test_patience_with_locks_is_simulated_where_a_function_states_it() -> None:
    assert trouble.lock_timeout(load_queries(SCHEMA)["make_partition"]) == 0.2
    assert trouble.lock_timeout("set local lock_timeout = '2s'") == 2.0
    assert trouble.lock_timeout(load_queries(SCHEMA)["claim"]) is None


def test_seeds_are_others_each_time_unless_they_are_given() -> None:
    drawn = {next(iter(parse_seeds(draw_seeds()))) for _ in range(3)}
    assert len(drawn) == 3
    assert min(drawn) >= 10**6


def test_every_mutant_still_finds_what_it_changes() -> None:
    assert len({mutant.name for mutant in mutants.MUTANTS}) == len(mutants.MUTANTS) > 30
    for mutant in mutants.MUTANTS:
        if mutant.queries is not None:
            mutant.queries(load_queries("sim"))
        if mutant.patch is not None:
            patches = Patches(None, None)  # type: ignore[arg-type]
            try:
                mutant.patch(patches)
            finally:
                patches.undo()


def rows_of_the_page(heading: str) -> list[list[str]]:
    """Return the cells of the first table under a heading of docs/guarantees.md, without its head."""
    page = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    lines = page.partition(heading)[2].splitlines()
    table = takewhile(
        lambda line: line.startswith("|"), dropwhile(lambda line: line[:1] != "|", lines)
    )
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in list(table)[2:]]


def test_the_page_lists_every_mutant_with_the_seed_that_caught_it() -> None:
    """Of one that nothing has caught so far it says so, with a dash for the seed."""
    listed = {name: seed for name, seed, _ in rows_of_the_page("### Mutants")}
    assert list(listed) == [mutant.name for mutant in mutants.MUTANTS]
    assert {name: int(seed) for name, seed in listed.items() if seed != "-"} == read_kept()


def test_the_page_lists_every_move() -> None:
    listed = [name.strip("`") for name, _ in rows_of_the_page("### Simulation")]
    assert listed == list(MOVES)


def test_what_replaces_a_function_takes_what_that_takes() -> None:
    class Owner:
        async def work(self, one: int, *, two: int) -> None: ...

    async def fits(self: Owner, one: int, **rest: int) -> None: ...

    async def old(self: Owner, one: int) -> None: ...

    honest, patches = Owner.work, Patches(None, None)  # type: ignore[arg-type]
    with pytest.raises(LookupError, match=r"Owner\.work is out of date"):
        patches.set(Owner, "work", old)
    assert Owner.work is honest
    patches.set(Owner, "work", fits)
    patches.undo()
    assert Owner.work is honest


def test_every_size_that_is_made_small_is_still_there() -> None:
    for module, name, _ in surroundings.SMALL:
        assert isinstance(getattr(module, name), int)


def test_schedulers_look_as_often_as_a_seed_says() -> None:
    patches = Patches(None, None)  # type: ignore[arg-type]
    _slow_down(patches, 1.5)
    try:
        assert {firer._INTERVAL, releaser._INTERVAL} == {1.5}
    finally:
        patches.undo()
    assert 1.5 not in {firer._INTERVAL, releaser._INTERVAL}


@pytest.mark.parametrize(
    ("name", "behind", "answered", "held"),
    [
        ("claim", (True, True), False, True),
        ("claim", (True, False), False, False),  # by then it waits for somebody's slow commit
        ("claim", (False, True), False, False),
        ("claim", (True, True), True, False),
        ("list_jobs", (True, True), False, False),
    ],
)
def test_who_is_held_up_by_a_reader_waits_for_it_for_a_second(
    name: str, behind: tuple[bool, bool], answered: bool, held: bool
) -> None:
    looks, later = iter(behind), list[Callable[[], None]]()
    engine: Any = SimpleNamespace(waits_for_reader=lambda backend: next(looks))
    network: Any = SimpleNamespace(
        after=lambda seconds, action, *given: later.append(partial(action, *given))
    )
    waiter: Any = SimpleNamespace(call="a call", backend="a backend")
    held_up = HeldUp(engine, network)
    held_up.watch(waiter, name)
    if answered:
        waiter.call = "the next call"
    for look in later:
        look()
    assert bool(held_up.found) == held


def test_a_process_that_never_waits_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the seed would run for ever, and say nothing."""

    async def spin() -> None:
        asyncio.current_task().set_name("busy")  # type: ignore[union-attr]
        while True:
            await asyncio.sleep(0)

    monkeypatch.setattr(loops, "_ROUNDS", 100)
    loop = loops.SimLoop()
    context = loops.context_of(loops.Process("n1.1"))
    task = loop.create_task(spin(), context=context)
    with pytest.raises(
        loops.Standstill, match=r"still at 1000\.000: <Process n1\.1>, busy goes on"
    ):
        loop.run_until_complete(task)
    loop.close()


async def test_a_process_that_dies_of_an_error_is_a_problem_of_the_seed() -> None:
    """Else its clients would submit nothing, and all that was not submitted would be well."""

    async def fail() -> None:
        raise AttributeError("no such thing")

    async def end() -> None: ...

    cluster = Cluster(None, None, 1, None, frozenset())  # type: ignore[arg-type]
    for name, life in (("c1.1", fail), ("c2.1", end)):
        process = asyncio.ensure_future(life())
        await asyncio.wait([process])
        cluster.note_end(name, process)

    (problem,) = cluster.problems
    assert re.search(r"process c1\.1 died of AttributeError.*no such thing", problem)
