"""The janitor and the releaser: what is made ahead, what is forgotten when, what never is."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import asyncpg
import pytest

from proof.waiting import eventually
from rota import NotFound, Retry
from rota.scheduler.janitor import Janitor
from rota.scheduler.releaser import Releaser
from rota.scheduler.shards import AllShards
from rota.store.database import Database
from rota.store.work import Succeeded, UpkeepStore
from tests.support.fake_node import FakeNode


@pytest.fixture
def app(sandbox):
    @sandbox.app.task
    async def greet() -> None: ...

    @sandbox.app.task(retry=Retry(max_attempts=1))
    async def hopeless() -> None:
        raise ValueError("no luck")

    return sandbox.app


@pytest.fixture
def janitor(hot, app):
    return Janitor(UpkeepStore(hot), app.settings, AllShards(128))


@pytest.fixture
def days(hot):
    async def days() -> list[str]:
        async with hot.connection() as connection:
            rows = await connection.fetch(
                "select c.relname from pg_inherits as i join pg_class as c on c.oid = i.inhrelid"
                " where i.inhparent = $1::text::regclass and c.relname <> 'past_other' order by 1",
                f"{hot.schema}.past",
            )
        return [row[0] for row in rows]

    return days


def day(moment):
    return f"past_{moment:%Y%m%d}"


async def test_days_are_made_a_week_ahead(sandbox, janitor, days):
    await sandbox.advance(days=100)
    await janitor.clean()
    made = await days()
    assert {day(sandbox.now() + timedelta(days=n)) for n in range(8)} <= set(made)
    await janitor.clean()
    assert await days() == made


async def test_what_ends_goes_to_its_day(sandbox, app, hot):
    await app.submit("greet")
    await sandbox.run_due()
    async with hot.connection() as connection:
        table = await connection.fetchval(f"select tableoid::regclass::text from {hot.schema}.past")
    assert table == f"{hot.schema}.{day(sandbox.now())}"


async def test_a_day_is_dropped_when_its_last_moment_is_older_than_the_retention(
    sandbox, app, janitor, days
):
    handle = await app.submit("greet")
    await sandbox.run_due()
    first = day(sandbox.now())
    midnight = sandbox.now().replace(hour=0, minute=0, second=0, microsecond=0)
    await sandbox.travel_to(midnight + timedelta(days=8, seconds=-1))
    await janitor.clean()
    assert first in await days()
    assert (await handle.status()).state == "succeeded"
    await sandbox.advance(seconds=1)
    await janitor.clean()
    assert first not in await days()
    with pytest.raises(NotFound, match="retention"):
        await handle.status()


async def test_what_no_day_was_made_for_is_kept_and_forgotten_all_the_same(sandbox, app, janitor):
    await sandbox.advance(days=50)
    handle = await app.submit("greet")
    await sandbox.run_due()
    await janitor.clean()
    assert (await handle.status()).state == "succeeded"
    await sandbox.advance(days=7, seconds=1)
    await janitor.clean()
    assert await app.jobs.find(handle.id) is None


async def test_dead_letters_outlive_the_past(sandbox, app, janitor):
    handle = await app.submit("hopeless")
    await sandbox.run_due()
    await sandbox.advance(days=89)
    await janitor.clean()
    assert (await handle.status()).state == "failed"
    await sandbox.advance(days=2)
    await janitor.clean()
    assert await app.jobs.find(handle.id) is None


async def test_a_key_is_kept_exactly_as_long_as_its_job(sandbox, app, janitor):
    ended = await app.submit("greet", key="ended")
    dead = await app.submit("hopeless", key="dead")
    await sandbox.run_due()
    waiting = await app.submit("greet", key="waiting", delay=30 * 86400)
    await sandbox.advance(days=20)
    await janitor.clean()
    again = await app.submit("greet", key="ended")
    assert (again.existed, again.id == ended.id) == (False, False)
    for handle, task, key in ((dead, "hopeless", "dead"), (waiting, "greet", "waiting")):
        again = await app.submit(task, key=key)
        assert (again.existed, again.id) == (True, handle.id)


async def test_what_waits_or_runs_is_never_forgotten(sandbox, app, hot, janitor):
    later = await app.submit("greet", delay=400 * 86400)
    running = await app.submit("greet")
    node = await FakeNode(hot, app.settings).register()
    await node.claim_one()
    ready = await app.submit("greet")
    await sandbox.advance(days=399)
    await janitor.clean()
    assert (await later.status()).state == "scheduled"
    assert (await running.status()).state == "running"
    assert (await ready.status()).state == "ready"


async def test_nodes_that_ended_are_shown_for_a_day(sandbox, app, hot, janitor):
    node = await FakeNode(hot, app.settings).register()
    await hot.fetch("deregister_node", node.id)
    await janitor.clean()
    assert [each.id for each in await app.nodes.list(ended=True)] == [node.id]
    await sandbox.advance(days=1, seconds=1)
    await janitor.clean()
    assert await app.nodes.list(ended=True) == []


async def test_a_tick_cleans_without_being_asked(sandbox, app, hot, janitor, days):
    await sandbox.advance(days=30)
    assert await janitor.tick() > 0
    assert day(sandbox.now()) in await days()


# -- the releaser


async def test_what_is_due_is_released_and_what_isnt_stays(sandbox, app, hot):
    soon = await app.submit("greet", delay=60)
    later = await app.submit("greet", delay=61)
    releaser = Releaser(UpkeepStore(hot), AllShards(128))
    await releaser.tick()
    assert (await soon.status()).state == "scheduled"
    await sandbox.advance(seconds=60)
    await releaser.tick()
    assert (await soon.status()).state == "ready"
    assert (await later.status()).state == "scheduled"


async def test_jobs_are_released_ahead_of_their_moment_by_the_horizon(sandbox, app, hot):
    async with hot.connection() as connection:
        await connection.execute(
            f"update {hot.schema}.setting set value = 1000 where name = 'horizon_ms'"
        )
    handle = await app.submit("greet", delay=60)
    due_at = (await handle.status()).due_at
    releaser = Releaser(UpkeepStore(hot), AllShards(128))
    await sandbox.advance(seconds=58.9)
    await releaser.tick()
    assert (await handle.status()).state == "scheduled"
    await sandbox.advance(seconds=0.1)
    await releaser.tick()
    job = await handle.status()
    assert (job.state, job.due_at) == ("ready", due_at)
    # Whoever claims it is told when to start it.
    row = await FakeNode(hot, app.settings).claim_one()
    assert row["early"] == due_at.timestamp()


async def test_a_release_is_bounded_and_takes_the_rest_the_next_time(sandbox, app, hot):
    greet = app.tasks["greet"]
    await greet.options(delay=60).submit_many([{}] * 300)
    await sandbox.advance(seconds=60)
    store = UpkeepStore(hot)
    assert (await store.release(range(128), [None] * 128, 200))[0] == 200
    assert (await store.release(range(128), [None] * 128, 200))[0] == 100
    assert (await store.release(range(128), [None] * 128, 200))[0] == 0
    assert await app.jobs.count() == {"ready": 300}


async def test_a_release_of_some_shards_leaves_the_others(sandbox, app, hot):
    greet = app.tasks["greet"]
    await greet.options(delay=60).submit_many([{}] * 300)
    await sandbox.advance(seconds=60)
    store = UpkeepStore(hot)
    even, _ = await store.release(range(0, 128, 2), [None] * 64, 1000)
    assert 0 < even < 300
    assert await store.release(range(1, 128, 2), [None] * 64, 1000) == (300 - even, [])


# -- beside a reader that takes hours, as a backup does


@pytest.fixture
async def reader(hot):
    """Holds what pg_dump holds: a lock of its own on every table, in one transaction."""
    connection = await asyncpg.connect(hot.url)  # which may stay idle
    async with connection.transaction(isolation="repeatable_read"):
        tables = await connection.fetch(
            "select oid::regclass::text from pg_class where relkind in ('r', 'p')"
            " and relnamespace = $1::text::regnamespace", hot.schema
        )  # fmt: skip
        names = ", ".join(row[0] for row in tables)
        await connection.execute(f"lock table {names} in access share mode")
        yield connection
    await connection.close()


async def test_finishes_never_wait_for_days_that_a_reader_keeps_from_being_made(
    sandbox, app, hot, reader
):
    """The janitor waits for its locks all the time; a finish that waits behind it would time out."""
    node = await FakeNode(hot, app.settings).register()
    await app.submit("greet")
    row = await node.claim_one()
    await sandbox.advance(days=3)
    future = (sandbox.now() + timedelta(days=7)).date()
    async with hot.connection() as connection:
        function = await connection.fetchval(
            f"select pg_get_functiondef('{hot.schema}.make_partition'::regproc)"
        )
        patient = function.replace("200ms", "30s")
        assert patient != function
        await connection.execute(patient)
        making = asyncio.create_task(hot.fetchval("make_partition", "past", future))

        async def waits() -> bool:
            return await connection.fetchval(
                "select exists (select from pg_locks where not granted"
                " and relation = $1::text::regclass)", f"{hot.schema}.past_other"
            )  # fmt: skip

        try:
            await eventually(waits)
            await connection.execute("set lock_timeout = '5s'")
            done = [Succeeded(row["id"], row["token"], 0.0, 0.0)]
            accepted = await node.store.finish_succeeded(node.id, done, 0.0, connection)
        finally:
            await connection.execute("reset lock_timeout")
            making.cancel()
            await asyncio.gather(making, return_exceptions=True)
            await connection.execute(function)
    assert accepted == 1


async def test_days_are_made_and_dropped_when_the_reader_is_gone(sandbox, app, hot, janitor, days):
    await app.submit("greet")
    await sandbox.run_due()
    first = day(sandbox.now())
    await sandbox.advance(days=40)
    before = await days()
    async with hot.connection() as connection:
        async with connection.transaction():
            await connection.execute(
                f"lock table only {hot.schema}.past, {hot.schema}.past_other in access share mode"
            )
            await janitor.clean()
            assert await days() == before
            # What is old is gone all the same: only the empty table is left.
            assert await connection.fetchval(f"select count(*) from {hot.schema}.{first}") == 0
        await janitor.clean()
    assert first not in await days()
    assert day(sandbox.now() + timedelta(days=7)) in await days()


async def test_a_vacuum_may_take_longer_than_a_statement(sandbox, app):
    """It waits for a lock here, as it works through a large table elsewhere."""
    settings = app.settings.replace(statement_timeout=0.2)
    impatient = Database(settings.database_url, settings, hot=True)
    await impatient.open()
    async with (await app.store()).database.connection() as connection:
        async with connection.transaction():
            await connection.execute(
                f"lock table {settings.schema}.present in share update exclusive mode"
            )
            vacuum = asyncio.create_task(UpkeepStore(impatient).vacuum_present())

            async def has_taken_long() -> bool:
                await connection.execute("select pg_stat_clear_snapshot()")
                return vacuum.done() or await connection.fetchval(
                    "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
                    f" and query like 'vacuum%{settings.schema}.present'"
                    " and clock_timestamp() - query_start > interval '0.5 s'"
                )

            await eventually(has_taken_long)
        await vacuum
    await impatient.close()
