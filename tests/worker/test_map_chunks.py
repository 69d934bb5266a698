"""Chunks of maps in real workers: members that hang, die and fail in child processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from proof.waiting import eventually
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


async def test_a_run_that_is_cancelled_while_its_generator_runs_can_be_resumed(
    make_app: Callable[..., App],
) -> None:
    app, closed, loaded, endless = make_app(), [], [], [True]

    @app.generator
    async def numbers() -> AsyncIterator[int]:
        try:
            for number in range(2_000):
                yield number
            while endless[0]:
                await asyncio.sleep(0.01)
        finally:
            closed.append(True)

    @app.task
    async def load(number: int) -> None:
        loaded.append(number)

    flow = app.workflow("cancelled")
    flow.map(load, over=flow.step(numbers), name="parts")
    async with Node(app).running():
        run = await flow.start()

        async def has_members() -> bool:
            progress = (await run.steps())[1].progress
            return progress is not None and progress.members > 1_000

        await eventually(has_members)
        await run.cancel()
        assert (await run.wait(60)).state == "cancelled"
        assert (closed, loaded) == ([True], [])
        endless[0] = False
        await run.resume()
        assert (await run.wait(60)).state == "succeeded"
    assert sorted(loaded) == list(range(2_000))
