"""rota.testing: real parts, a private schema, and time that only the test moves."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import pytest

import rota.testing
from rota import App, ConfigError, Context, Retry
from rota.testing import EndlessRun, isolated

BEGIN = datetime(2027, 3, 28, 0, 30, tzinfo=UTC)


@pytest.fixture
def app(sandbox):
    return sandbox.app


async def test_time_stands_still_until_it_is_moved(database_url):
    app = App(database_url=database_url)
    async with isolated(app, now=BEGIN) as sandbox:
        handle = await app.submit("elsewhere", {}, delay=3600)
        job = await handle.status()
        assert sandbox.now() == job.created_at == BEGIN
        assert job.due_at == BEGIN + timedelta(hours=1)
        assert await sandbox.advance(hours=1, seconds=30) == BEGIN + timedelta(seconds=3630)
        assert await sandbox.advance(timedelta(days=2)) == sandbox.now()
        await sandbox.travel_to(datetime(2028, 1, 1, tzinfo=UTC))
        later = await (await app.submit("elsewhere", {})).status()
        assert later.created_at == sandbox.now() == datetime(2028, 1, 1, tzinfo=UTC)


async def test_time_begins_with_the_databases_and_moves_forward_only(sandbox, database_url):
    connection = await asyncpg.connect(database_url)
    real = await connection.fetchval("select now()")
    await connection.close()
    assert abs(real - sandbox.now()) < timedelta(minutes=1)
    with pytest.raises(ConfigError, match="only moves forward"):
        await sandbox.advance(seconds=-1)
    with pytest.raises(ConfigError, match="time zone"):
        await sandbox.travel_to(datetime(2090, 1, 1))
    with pytest.raises(ConfigError, match="time zone"):
        async with isolated(sandbox.app, now=datetime(2090, 1, 1)):
            pass


async def test_time_moves_for_connections_that_have_already_planned_with_it(sandbox, app):
    store = await app.store()
    async with store.database.connection() as connection:
        schema = app.settings.schema
        prepared = await connection.prepare(f"select {schema}.now(), $1::int")
        for _ in range(8):  # often enough for a generic plan
            assert (await prepared.fetchrow(1))[0] == sandbox.now()
            await sandbox.advance(minutes=1)


async def test_nothing_runs_before_it_is_due_and_everything_due_does(sandbox, app):
    ran = []

    @app.task
    async def on_the_loop(n: int) -> int:
        ran.append((n, threading.current_thread() is threading.main_thread()))
        return n

    @app.task
    def in_a_thread(n: int) -> int:
        ran.append((n, threading.current_thread() is threading.main_thread()))
        return n

    await on_the_loop.options(delay=10).submit(1)
    await in_a_thread.options(delay=20).submit(2)
    await on_the_loop.options(delay=30.5).submit(3)
    assert await sandbox.run_due() == []
    await sandbox.advance(seconds=30)
    done = await sandbox.run_due()
    assert [(job.state, job.result) for job in done] == [("succeeded", 1), ("succeeded", 2)]
    assert ran == [(1, True), (2, False)]
    await sandbox.advance(seconds=0.5)
    [job] = await sandbox.run_due()
    assert job.result == 3


async def test_what_a_job_submits_runs_in_the_same_call(sandbox, app):
    order = []

    @app.task
    async def parent(depth: int) -> None:
        order.append(depth)
        if depth:
            await parent.submit(depth - 1)
            await parent.options(delay=60).submit(-1)

    await parent.submit(2)
    done = await sandbox.run_due()
    assert order == [2, 1, 0]
    assert len(done) == 3
    assert len(await sandbox.jobs(state="scheduled")) == 2


async def test_plain_functions_can_submit_as_well(sandbox, app):
    @app.task
    def parent() -> None:
        child.submit_sync()

    @app.task
    def child() -> str:
        return "done"

    await parent.submit()
    done = await sandbox.run_due(raise_errors=True)
    assert [job.task for job in done] == ["parent", "child"]


async def test_what_raises_is_recorded_and_only_raised_on_request(sandbox, app):
    @app.task(retry=Retry(max_attempts=1))
    async def broken() -> None:
        raise LookupError("no luck")

    @app.task(retry=Retry(max_attempts=1))
    def broken_plainly() -> None:
        raise LookupError("no luck either")

    for task, message in ((broken, "no luck"), (broken_plainly, "no luck either")):
        await task.submit()
        [job] = await sandbox.run_due()
        assert (job.state, job.error.message) == ("failed", message)
        handle = await task.submit()
        with pytest.raises(LookupError, match=message):
            await sandbox.run_due(raise_errors=True)
        assert (await handle.status()).state == "failed"


async def test_a_job_that_submits_itself_for_ever_is_noticed(sandbox, app):
    @app.task
    async def again() -> None:
        await again.submit()

    await again.submit()
    with pytest.raises(EndlessRun, match="20 attempts ran and more jobs are due"):
        await sandbox.run_due(limit=20)


async def test_a_limit_that_is_just_enough_is_enough(sandbox, app):
    @app.task
    async def greet() -> None: ...

    await greet.submit_many([{}] * 5)
    assert len(await sandbox.run_due(limit=5)) == 5


async def test_nothing_is_held_once_it_has_run(sandbox, app, hot):
    @app.task(guarantee="at_most_once")
    async def careful(ctx: Context) -> int:
        return ctx.attempt

    await careful.submit_many([{}] * 3)
    assert [job.result for job in await sandbox.run_due()] == [1, 1, 1]
    async with hot.connection() as connection:
        assert await connection.fetchval(f"select count(*) from {hot.schema}.batch") == 0


async def test_sandboxes_dont_see_each_other_and_leave_nothing_behind(database_url):
    one, two = App(database_url=database_url), App(database_url=database_url)
    async with isolated(one, now=BEGIN) as first, isolated(two, now=BEGIN) as second:
        schemas = {one.settings.schema, two.settings.schema}
        await one.submit("elsewhere", {})
        await first.advance(days=1)
        assert await second.jobs() == []
        assert second.now() == BEGIN
        assert (await (await two.submit("t", {})).status()).created_at == BEGIN
    connection = await asyncpg.connect(database_url)
    left = await connection.fetch("select nspname from pg_namespace")
    await connection.close()
    assert not schemas & {row[0] for row in left}


async def test_the_app_is_as_before_even_when_the_block_fails(database_url):
    app = App(database_url=database_url, schema="its_own")

    async def fail_inside():
        async with isolated(app, namespace="acme"):
            assert app.settings.schema != "its_own"
            assert app.settings.namespace == "acme"
            await asyncio.to_thread(app.submit_sync, "elsewhere", {})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_inside()
    assert (app.settings.schema, app.settings.namespace) == ("its_own", "default")


async def test_synchronous_callers_follow_the_app_from_sandbox_to_sandbox(database_url):
    app = App(database_url=database_url)
    for _ in range(2):
        async with isolated(app) as sandbox:
            await asyncio.to_thread(app.submit_sync, "elsewhere", {})
            assert len(await sandbox.jobs()) == 1


async def test_without_a_database_url_the_embedded_postgresql_is_used_and_kept():
    data_dir = Path(tempfile.mkdtemp(prefix="rota-"))  # short, for the socket's sake
    data_dir.chmod(0o711)
    app = App(data_dir=data_dir, database_url=None)
    try:
        for _ in range(2):
            async with isolated(app) as sandbox:
                await app.submit("elsewhere", {})
                assert len(await sandbox.jobs()) == 1
        assert list(rota.testing._embedded) == [data_dir]
    finally:
        rota.testing._embedded.pop(data_dir).close()
        shutil.rmtree(data_dir)


async def test_a_watched_job_is_given_when_it_has_changed_until_it_has_ended(sandbox):
    going = asyncio.Event()

    @sandbox.app.task
    async def count(ctx: Context) -> None:
        ctx.progress(1, 2, "half")
        await going.wait()

    job = await count.submit()
    watching = job.watch(every=0.01)
    assert (await anext(watching)).state == "ready"
    running = asyncio.create_task(sandbox.run_due())
    async with asyncio.timeout(60):
        seen = [await anext(watching)]
        going.set()
        seen += [each async for each in watching]
    await running
    assert seen[0].state in ("running", "succeeded")
    assert [each.state for each in seen].count("succeeded") == 1
    assert seen[-1].state == "succeeded"
