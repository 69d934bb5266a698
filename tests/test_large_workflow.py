"""A workflow of ten thousand steps, some of which fail, on workers that are killed; resumed thrice."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from proof.waiting import eventually
from rota import App
from rota.core.workflow.graph import Graph
from rota.core.workflow.model import Definition, StepDefinition
from rota.run_handle import RunHandle
from tests.support import fault_tasks
from tests.support.cluster import Cluster
from tests.support.fault_tasks import breaks

_STEPS, _BESIDE = 10_000, 250
_FAST = {"heartbeat": 0.5, "missed_heartbeats": 3, "kill_grace": 1, "grace": 5, "max_crashes": 20}
_PATIENCE = 900.0


@pytest.fixture
async def app(make_app: Callable[..., App]) -> AsyncIterator[App]:
    async with fault_tasks.app.using(make_app(**_FAST).settings) as app:
        async with (await app.store()).database.connection() as connection:
            await connection.execute(
                "drop table if exists public.fault_effect;"
                "create table public.fault_effect (number int not null)"
            )
        yield app


@pytest.fixture
def cluster(app: App, tmp_path: Path) -> Any:
    cluster = Cluster(tmp_path, app.settings.database_url or "", app.settings.schema, **_FAST)
    yield cluster
    cluster.stop()


def _graph() -> tuple[Graph, dict[int, list[int]]]:
    """Each step comes after two of the row before it; every other one is exactly_once."""
    random = Random(1)
    before: dict[int, list[int]] = {}
    steps: list[StepDefinition] = []
    for number in range(_STEPS):
        first = number - number % _BESIDE - _BESIDE
        before[number] = random.sample(range(first, first + _BESIDE), 2) if first >= 0 else []
        steps.append(
            StepDefinition(
                name=f"s{number}", task="exact_leg" if number % 2 else "leg",
                arguments={"number": number}, after=[f"s{each}" for each in before[number]],
            )
        )  # fmt: skip
    return Graph(Definition(name="large", steps=steps)), before


async def _ended(run: RunHandle, cluster: Cluster, killed: set[int]) -> str:
    """Kill a worker whenever some hundred steps more have begun, until the run has ended."""
    begun = len(cluster.entries("begun"))
    worker = cluster.start("worker")
    while (state := (await run.status()).state) == "running":
        if len(cluster.entries("begun")) > begun + 600 and len(killed) < 12:
            killed.add(worker.pid)
            worker.kill()
            begun, worker = len(cluster.entries("begun")), cluster.start("worker")
        await asyncio.sleep(0.2)
    return state


@pytest.mark.proof
@pytest.mark.timeout(2 * _PATIENCE)
async def test_each_step_of_a_large_workflow_runs_as_often_as_it_must(
    app: App, cluster: Cluster
) -> None:
    graph, before = _graph()
    await app.workflows.put(graph)
    cluster.start("scheduler", "worker")
    await eventually(partial(_are_registered, app), what="the tasks, with their guarantees")
    run = await app.runs.start("large", {})
    killed: set[int] = set()
    async with asyncio.timeout(_PATIENCE):
        for _ in range(3):
            assert await _ended(run, cluster, killed) == "failed"
            with (cluster.folder / "mended").open("ab") as mended:
                mended.write(b".")
            await run.resume()
        assert await _ended(run, cluster, killed) == "succeeded"
    assert (await run.status()).round == 4
    assert killed, "nothing was killed"

    begun: dict[int, list[int]] = defaultdict(list)  # by which processes
    for number, _, pid in cluster.entries("begun"):
        begun[number].append(pid)
    for number, count in _demanded(before).items():
        lost = sum(pid in killed for pid in begun[number])
        assert abs(len(begun[number]) - count) <= lost, (number, begun[number])
    async with (await app.store()).database.connection() as connection:
        effects = await connection.fetch("select number from public.fault_effect")
    assert Counter(row[0] for row in effects) == dict.fromkeys(range(1, _STEPS, 2), 1)
    _check_order(cluster, before)
    await eventually(partial(_nothing_left, app), what="the end of all jobs")


def _demanded(before: dict[int, list[int]]) -> Counter[int]:
    """How often each step begins if nothing is killed: in a round in which it fails, twice."""
    counts: Counter[int] = Counter()
    done: set[int] = set()
    for mended in range(4):
        for number, needed in before.items():
            if number not in done and done.issuperset(needed):
                fails = mended < breaks(number)
                counts[number] += 2 if fails else 1
                if not fails:
                    done.add(number)
    assert len(done) == _STEPS
    return counts


def _check_order(cluster: Cluster, before: dict[int, list[int]]) -> None:
    done: set[int] = set()
    for line in cluster.journal.read_text().splitlines():
        kind, text, _, _ = line.split()
        if kind == "done":
            done.add(int(text))
        elif kind == "begun":
            assert done.issuperset(before[int(text)]), f"step {text} began too early"


async def _are_registered(app: App) -> bool:
    async with (await app.store()).database.connection() as connection:
        names = "select count(*) from {}.task where name in ('leg', 'exact_leg')"
        return bool(await connection.fetchval(names.format(app.settings.schema)) == 2)


async def _nothing_left(app: App) -> bool:
    async with (await app.store()).database.connection() as connection:
        schema = app.settings.schema
        left = await connection.fetchval(f"select count(*) from {schema}.job where state < 5")
    return not left
