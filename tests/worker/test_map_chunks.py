"""Chunks of maps in real workers: members that hang, die and fail in child processes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from rota import App
from rota.node import Node
from rota.workflow import Workflow
from tests.support import map_tasks


@pytest.fixture
async def app(make_app: Callable[..., App]) -> AsyncIterator[App]:
    settings = make_app(heartbeat=0.5, kill_grace=0.5, processes=2).settings
    async with map_tasks.app.using(settings) as app:
        yield app


async def test_members_that_hang_die_or_fail_cost_no_other(app: App) -> None:
    flow = Workflow(app.runs, "rough")
    flow.map(map_tasks.rough, over=list(range(100)), size=50, tolerate=3, name="parts")
    async with Node(app).running():
        run = await flow.start()
        status = await run.wait(100)
    assert status.state == "succeeded"
    failed = await run.members("parts", state="failed")
    assert [(each.number, each.error["type"]) for each in failed] == [
        (13, "Interrupted"), (17, "Interrupted"), (19, "ValueError"),
    ]  # fmt: skip
    results = [each.result for each in await run.members("parts")]
    expected = [None if number in (13, 17, 19) else number for number in range(100)]
    assert results == expected


async def test_a_plain_generator_runs_in_a_child_process(app: App) -> None:
    flow = Workflow(app.runs, "letters")
    flow.map(map_tasks.upper, over=flow.step(map_tasks.letters), size=500, name="parts")
    async with Node(app).running():
        run = await flow.start(count=3_000)
        status = await run.wait(100)
    assert status.state == "succeeded"
    assert await run.result() == {"count": 3_000, "succeeded": 3_000, "failed": 0}
    assert [each.result for each in await run.members("parts", after=2_996)] == [
        "C",
        "A",
        "B",
        "C",
    ][1:]
