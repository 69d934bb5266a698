"""Hung work is noticed: handlers that give no sign of life are stopped, and every run has a maximum."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import asyncpg
import pytest

import rota.testing
from rota import App, ConfigError, Context, InvalidArguments, Retry
from rota.node import Node
from rota.store.remote import decode_retry
from tests.support import hung_tasks

PLACES = ["on_the_loop", "in_a_thread", "in_a_child"]


@pytest.fixture
async def app(make_app: Callable[..., App]) -> AsyncIterator[App]:
    settings = make_app(heartbeat=0.5, kill_grace=1, processes=1).settings
    async with hung_tasks.app.using(settings) as app:
        yield app


async def run(app: App, task: str, **arguments: Any) -> Any:
    async with Node(app).running():
        return await (await app.submit(task, arguments)).wait(60)


# -- signs of life


@pytest.mark.parametrize("place", PLACES)
async def test_a_handler_without_a_sign_of_life_is_stopped_and_recorded_as_such(
    app: App, place: str
) -> None:
    job = await run(app, f"silent_{place}")
    assert (job.state, job.error.type) == ("failed", "HeartbeatTimeout")
    assert job.error.message.startswith("gave no sign of life for longer than")
    assert "heartbeat_timeout of 300 ms" in job.error.message
    [attempt] = job.attempts
    assert attempt.outcome == "heartbeat_timeout"


async def test_a_coroutine_that_blocks_the_loop_gives_no_sign_of_life_either(app: App) -> None:
    job = await run(app, "blocking_on_the_loop")
    assert (job.state, job.attempts[0].outcome) == ("failed", "heartbeat_timeout")


async def test_a_submit_may_bring_a_heartbeat_timeout_of_its_own(
    sandbox: rota.testing.Sandbox,
) -> None:
    """By Python, by SQL, by a schedule; it comes before the task's."""
    app = sandbox.app

    @app.task(heartbeat_timeout=3600, retry=Retry(max_attempts=1))
    async def silent() -> None:
        await asyncio.sleep(3600)

    first = await silent.options(heartbeat_timeout=0.01).submit()
    second = await app.submit("silent", {}, heartbeat_timeout=0.01, tags=["x"])
    await app.schedule("s", "silent", every="1h", options={"heartbeat_timeout": 0.01})
    await app.schedules.trigger("s")
    async with (await app.store()).database.connection() as connection:
        submit = f"select {app.settings.schema}.submit('silent', headers => $1)"
        await connection.execute(submit, '{"heartbeat_timeout": 0.01}')
        for bad in ("0", "-1", "1e999", '"5"'):
            with pytest.raises(asyncpg.PostgresError, match="heartbeat_timeout in headers must"):
                await connection.execute(submit, f'{{"heartbeat_timeout": {bad}}}')
    await sandbox.run_due()
    outcomes = [
        job.attempts[0].outcome if job.attempts else job.state for job in await app.jobs.list()
    ]
    assert outcomes == ["heartbeat_timeout"] * 4
    for job in (first, second):
        assert "heartbeat_timeout of 10 ms" in (await app.jobs.get(job.id)).error.message


@pytest.mark.parametrize("bad", [0, -1, float("inf"), float("nan"), "5", True])
async def test_a_submit_s_heartbeat_timeout_is_checked(app: App, bad: Any) -> None:
    with pytest.raises(InvalidArguments, match="heartbeat_timeout must be above 0 seconds"):
        await app.submit("silent_on_the_loop", {}, heartbeat_timeout=bad)
    with pytest.raises(InvalidArguments, match="option of its own"):
        await app.submit("silent_on_the_loop", {}, headers={"heartbeat_timeout": 5})


@pytest.mark.parametrize("how", ["heartbeat", "progress"])
@pytest.mark.parametrize("place", PLACES)
async def test_a_handler_that_gives_signs_of_life_may_run_for_longer(
    app: App, place: str, how: str
) -> None:
    job = await run(app, f"lively_{place}", how=how)
    assert (job.state, job.error) == ("succeeded", None)


async def test_signs_of_life_of_a_local_handler_cost_no_statement(
    sandbox: rota.testing.Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    @sandbox.app.task(heartbeat_timeout=60)
    async def lively(ctx: Context) -> None:
        ctx.heartbeat()
        before = statements.copy()
        for _ in range(1000):
            ctx.heartbeat()
            await asyncio.sleep(0)
        assert statements == before

    statements: list[str] = []
    database = sandbox._database
    fetch = type(database).fetch

    async def counted(self: Any, name: str, *arguments: Any, **given: Any) -> Any:
        statements.append(name)
        return await fetch(self, name, *arguments, **given)

    monkeypatch.setattr(type(database), "fetch", counted)
    await lively.submit()
    [job] = await sandbox.run_due(raise_errors=True)
    assert job.state == "succeeded"
    assert statements


async def test_a_missing_sign_of_life_is_tried_again_as_any_failure_unless_the_retry_rules_it_out(
    sandbox: rota.testing.Sandbox,
) -> None:
    @sandbox.app.task(heartbeat_timeout=0.01, retry=Retry(max_attempts=2, base=0, jitter=0))
    async def again() -> None:
        await asyncio.Event().wait()

    @sandbox.app.task(
        heartbeat_timeout=0.01,
        retry=Retry(max_attempts=2, base=0, never_on=("rota.errors.TimedOut",)),
    )
    async def never() -> None:
        await asyncio.Event().wait()

    for task, attempts in ((again, 2), (never, 1)):
        await task.submit()
        [job] = await sandbox.run_due()
        assert [each.outcome for each in job.attempts] == ["heartbeat_timeout"] * attempts


@pytest.mark.parametrize("bad", [0, -1, float("nan")])
def test_a_heartbeat_timeout_must_be_above_nothing(bad: float) -> None:
    with pytest.raises(ConfigError, match="heartbeat_timeout must be above 0 seconds"):
        App().task(heartbeat_timeout=bad)


# -- the maximum


@pytest.mark.parametrize("place", PLACES)
async def test_a_run_without_a_timeout_ends_at_the_maximum_of_the_installation(
    app: App, place: str
) -> None:
    async with app.using(app.settings.replace(max_run_time=1.5)):
        job = await run(app, f"endless_{place}")
    assert (job.state, job.timeout, job.attempts[0].outcome) == ("failed", None, "timed_out")
    assert "the maximum run time of the installation, 1.5 s" in job.error.message


async def test_the_maximum_of_a_queue_goes_before_that_of_the_installation(app: App) -> None:
    await app.queues.set_max_run_time("short", 1.5)
    async with Node(app).running():
        long, short = [
            await app.submit("endless_on_the_loop", queue=queue) for queue in ("default", "short")
        ]
        job = await short.wait(60)
        assert "the maximum run time of queue 'short', 1.5 s" in job.error.message
        assert (await app.jobs.get(long.id)).state == "running"
        await app.queues.set_max_run_time("default", 1.5)
        job = await long.wait(60)
        assert "the maximum run time of queue 'default'" in job.error.message


async def test_an_explicit_timeout_may_be_longer_than_the_maximum_or_unlimited(app: App) -> None:
    async with app.using(app.settings.replace(max_run_time=0.5)):
        job = await run(app, "unlimited", seconds=2.5)
        assert job.state == "succeeded"


def test_by_default_nothing_runs_for_longer_than_a_day() -> None:
    assert App().settings.max_run_time == 86_400


# -- finding them


async def test_jobs_that_timed_out_are_found_by_their_outcome(
    sandbox: rota.testing.Sandbox,
) -> None:
    app = sandbox.app

    @app.task(timeout=0.01, retry=Retry(max_attempts=1))
    async def stuck() -> None:
        await asyncio.Event().wait()

    @app.task(heartbeat_timeout=0.01, retry=Retry(max_attempts=1))
    async def silent() -> None:
        await asyncio.Event().wait()

    @app.task(timeout=0.5, retry=Retry(max_attempts=2, base=0, jitter=0))
    async def once(ctx: Context) -> None:
        if ctx.attempt == 1:
            await asyncio.Event().wait()

    handles = {task.name: await task.submit() for task in (stuck, silent, once)}
    await sandbox.run_due()

    async def found(outcome: str) -> list[Any]:
        return [job.id for job in await app.jobs.list(outcome=outcome)]

    assert await found("timed_out") == [handles["stuck"].id]
    assert await found("heartbeat_timeout") == [handles["silent"].id]
    assert await found("succeeded") == [handles["once"].id]  # its last attempt did
    with pytest.raises(ConfigError, match="outcome 'bored' is not one of: succeeded, raised"):
        await found("bored")


@pytest.mark.parametrize(
    "stored",
    [
        '{"max_attempts": 2, "only_on": [], "never_on": [], "of_a_newer_release": 1}',
        '{"max_attempts": 0, "only_on": [], "never_on": []}',
        '{"max_attempts": "two", "only_on": [], "never_on": []}',
        '{"only_on": 5}',
        "{}",
        "[]",
        "null",
    ],
)
def test_a_stored_retry_policy_that_can_t_be_read_counts_as_the_default(
    stored: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert decode_retry(stored) == Retry()
    assert "a stored retry policy can't be read" in caplog.text


@pytest.mark.parametrize("missed", [0, 1])
def test_a_node_that_misses_no_heartbeat_can_t_be_declared_dead_for_one(missed: int) -> None:
    with pytest.raises(ConfigError, match="missed_heartbeats must be at least 2"):
        App(missed_heartbeats=missed)
