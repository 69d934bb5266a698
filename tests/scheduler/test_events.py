"""Slow runs, missed deadlines and late occurrences are noticed, once each."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

import rota.testing
from proof.waiting import eventually
from rota import App, ConfigError
from rota.core.durations import Baseline, declared_baseline, judge_trend, learn_baseline
from rota.node import Node
from rota.operations.event_text import sentence
from rota.scheduler.janitor import Janitor
from rota.scheduler.shards import AllShards
from rota.store.events import EventStore
from rota.store.work import UpkeepStore
from rota.worker.slow_jobs import Paces


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
        await handle.result(60)
        await (await app.submit("plain")).result(60)
    assert await kinds(app) == [kind]


async def test_a_deadline_that_passes_before_the_start_is_noticed_by_the_scheduler(
    app: App,
) -> None:
    async with Node(app, roles=["worker"], queues=["other"]).running():
        pass  # its tasks are known now, and nobody works
    handle = await app.submit("with_deadline")
    database = await app.connector.open_database(hot=True)
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
    job_id = (await app.schedules.trigger("s")).job_id
    await asyncio.sleep(0.3)  # the lateness itself
    async with Node(app).running():
        events = await eventually(app.events.list)
    assert [(event.kind, event.job_id) for event in events] == [("late", job_id)]


async def test_a_sensible_expectation_is_asked_for(app: App) -> None:
    with pytest.raises(ConfigError, match="expected must be above 0"):
        app.task(expected=0)(lambda: None)


def test_a_baseline_is_the_middle_of_the_runs_and_leaves_room_for_single_ones() -> None:
    assert learn_baseline([2.0] * 20) == Baseline(2.0, 4.0)
    assert learn_baseline([0.001] * 20) == Baseline(0.001, 1.0)
    uneven = learn_baseline([1.0, 9.0] * 10)
    assert (uneven.usual, uneven.most) == (5.0, 21.0)


def test_a_slow_drift_is_seen_because_the_baseline_stays() -> None:
    baseline, took, trends = learn_baseline([2.0] * 20), 2.0, []
    runs: deque[float] = deque([2.0] * 20, maxlen=20)
    for _ in range(300):
        took *= 1.005
        runs.append(took)
        trends.append(judge_trend(runs, baseline, declared=False))
    assert trends[0] == "as usual"
    assert trends[-1] == "slower"
    assert "quicker" not in trends


@pytest.mark.parametrize(
    ("usual", "runs", "trend"),
    [
        (2.0, [9.0] * 19, "unclear"),
        (2.0, [2.1] * 20, "as usual"),
        (2.0, [2.0] * 19 + [500.0], "as usual"),  # one slow run is an event of its own
        (2.0, [2.0] * 9 + [3.5] * 11, "slower"),
        (0.002, [0.009] * 20, "unclear"),
        (2.0, [0.9] * 20, "quicker"),
    ],
)
def test_what_counts_is_the_middle_of_the_last_runs(
    usual: float, runs: list[float], trend: str
) -> None:
    assert judge_trend(runs, Baseline(usual, 2 * usual), declared=False) == trend


def test_what_its_author_expects_is_the_measure_where_it_is_declared() -> None:
    baseline = declared_baseline(0.01)
    assert judge_trend([0.011] * 20, baseline, declared=True) == "slower"
    assert judge_trend([0.002] * 20, baseline, declared=True) == "as usual"


async def test_runs_that_are_consistently_slower_are_told_once_a_day_by_one_worker(
    sandbox: rota.testing.Sandbox,
) -> None:
    app = sandbox.app

    @app.task
    async def report() -> None: ...

    store = EventStore((await app.store()).database)
    workers = [Paces(store, "default", app.tasks) for _ in range(2)]

    async def work(seconds: float, *who: Paces) -> None:
        for paces in who or workers:
            for _ in range(20):
                paces.add("report", seconds)
            await paces.look_now()

    await work(2.0)
    assert [paces.expected("report") for paces in workers] == [4.0, 4.0]
    for drift in range(1, 20):
        await work(2.0 + drift * 0.1)
    [event] = await app.events.list(kind="slower")
    assert (event.task, event.job_id, event.detail["expected"]) == ("report", None, 2.0)
    assert sentence({"kind": "slower", "task": "report", "detail": event.detail}) == (
        "report has become slower: its runs take 3 s, expected 2 s"
    )
    restarted = Paces(store, "default", app.tasks)
    await work(3.9, restarted)
    assert restarted.expected("report") == 4.0  # a restart doesn't begin from slow runs
    await sandbox.advance(hours=25)
    await work(3.9)
    assert len(await app.events.list(kind="slower")) == 2
    await work(2.0)
    await work(3.9)
    assert len(await app.events.list(kind="slower")) == 3  # it had been as usual in between
    await sandbox.advance(days=8)
    await work(3.9)
    assert workers[0].expected("report") == pytest.approx(7.8)  # after a week it is usual


async def test_a_task_that_became_quicker_is_measured_by_its_new_pace(
    sandbox: rota.testing.Sandbox,
) -> None:
    store = EventStore((await sandbox.app.store()).database)
    paces = Paces(store, "default", {})
    for seconds in (10.0, 3.0):
        for _ in range(20):
            paces.add("report", seconds)
        await paces.look_now()
    assert paces.expected("report") == 6.0


async def test_the_lag_of_a_queue_is_told_when_it_begins_and_every_hour(
    sandbox: rota.testing.Sandbox,
) -> None:
    app = sandbox.app
    janitor = Janitor(UpkeepStore(sandbox._database), app.settings, AllShards(128))

    async def lags() -> list[dict[str, Any]]:
        await janitor._events.note_queue_lag(janitor._settings.lag_after)
        return [event.detail for event in await app.events.list(kind="queue_lag")]

    await app.submit("nobody", queue="urgent", priority=5)
    await app.submit("nobody", queue="urgent")
    await app.submit("nobody", queue="later", delay=3600)
    assert await lags() == []
    await sandbox.advance(seconds=301)
    [told] = await lags()
    assert (told["queue"], told["paused"], told["threshold"]) == ("urgent", False, 300)
    assert told["lag"] == pytest.approx(301, abs=5)
    await sandbox.advance(minutes=50)
    assert len(await lags()) == 1
    await app.queues.pause("urgent")
    await sandbox.advance(minutes=15)
    again = (await lags())[0]
    assert (again["queue"], again["paused"]) == ("urgent", True)
    assert len(await lags()) == 2
