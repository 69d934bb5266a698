"""Slow runs, missed deadlines and late occurrences are noticed, once each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from rota import App, ConfigError
from rota.core.durations import Usual
from rota.node import Node
from rota.services.janitor import Janitor
from rota.services.turns import AllShards
from rota.store.work import UpkeepStore
from tests.cluster import eventually


@pytest.fixture
async def app(make_app: Callable[..., App]) -> App:
    app = make_app(late_after=0.2)
    gate = asyncio.Event()
    app.gate = gate  # type: ignore[attr-defined]

    @app.task(expected=0.05)
    async def slow() -> None:
        await gate.wait()

    @app.task(deadline=0.05)
    async def with_deadline() -> None:
        await gate.wait()

    @app.task
    async def plain() -> None:
        pass

    return app


async def kinds(app: App) -> list[str]:
    return sorted(event.kind for event in await app.events.list())


@pytest.mark.parametrize(("name", "kind"), [("slow", "slow"), ("with_deadline", "deadline_missed")])
async def test_a_run_over_its_time_is_noticed_while_it_runs_and_once(
    app: App, name: str, kind: str
) -> None:
    async with Node(app).running():
        handle = await app.submit(name)
        events = await eventually(app.events.list)
        assert [(event.kind, event.task, event.job_id) for event in events] == [
            (kind, name, handle.id)
        ]
        app.gate.set()  # type: ignore[attr-defined]
        await handle.result(10)
        await (await app.submit("plain")).result(10)
    assert await kinds(app) == [kind]


async def test_a_deadline_that_passes_before_the_start_is_noticed_by_the_scheduler(
    app: App,
) -> None:
    async with Node(app, roles=["worker"], queues=["other"]).running():
        pass  # its tasks are known now, and nobody works
    handle = await app.submit("with_deadline")
    database = await app.open_database(hot=True)
    janitor = Janitor(UpkeepStore(database), app.settings, AllShards(128))

    async def noticed() -> Any:
        await janitor.tick()
        return await app.events.list(kind="deadline_missed")

    (event,) = await eventually(noticed)
    assert (event.job_id, event.detail["state"]) == (handle.id, "ready")
    await janitor.tick()
    assert await kinds(app) == ["deadline_missed"]
    await database.close()


async def test_an_occurrence_that_starts_late_is_noticed(app: App) -> None:
    await app.schedule("s", "plain", every="1d")
    job_id = await app.schedules.trigger("s")
    await asyncio.sleep(0.3)  # the lateness itself
    async with Node(app).running():
        events = await eventually(app.events.list)
    assert [(event.kind, event.job_id) for event in events] == [("late", job_id)]


async def test_a_sensible_expectation_is_asked_for(app: App) -> None:
    with pytest.raises(ConfigError, match="expected must be above 0"):
        app.task(expected=0)(lambda: None)


def test_what_is_usual_is_learned_after_some_runs_and_follows_change() -> None:
    usual = Usual()
    for _ in range(19):
        usual.add(2.0)
    assert usual.limit() is None
    usual.add(2.0)
    assert usual.limit() == 4.0
    for _ in range(100):
        usual.add(10.0)
    assert 10 < usual.limit() < 25  # type: ignore[operator]
