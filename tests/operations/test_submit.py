"""Submitting one job and many: what is stored."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from rota import (
    InvalidArguments,
    SubmitError,
)
from rota.core.rank import rank_of
from rota.lib.ids import new_id
from rota.store.bulk import shard_of
from rota.store.rows import lane_name
from tests.support.jobs import everything, register

# -- one job


async def test_a_submitted_job_is_ready_at_once_with_its_tasks_defaults(app):
    @app.task(queue="mail", needs=["smtp"], priority=3, timeout=30, guarantee="at_most_once")
    async def send(to: str) -> None: ...

    handle = await send.submit("ada@example.org")
    job = await handle.status()
    assert (job.state, job.task, job.payload) == ("ready", "send", {"to": "ada@example.org"})
    assert (job.queue, job.needs, job.priority, job.timeout) == ("mail", ("smtp",), 3, 30.0)
    assert (job.guarantee, job.max_attempts, job.attempt) == ("at_most_once", 5, 0)
    assert handle.existed is False


async def test_a_submits_options_win_over_the_tasks(app, greet):
    handle = await greet.options(
        queue="heavy", needs="gpu", priority=-7, max_attempts=2, timeout=9.5,
        tags=["a", "b"], headers={"trace": "1"},
    ).submit("Ada")  # fmt: skip
    job = await handle.status()
    assert (job.queue, job.needs, job.priority) == ("heavy", ("gpu",), -7)
    assert (job.max_attempts, job.timeout) == (2, 9.5)
    assert job.headers == {"trace": "1", "tags": ["a", "b"]}


async def test_a_job_for_later_is_scheduled_for_exactly_that_moment(app, greet):
    moment = datetime(2099, 3, 1, 9, 30, 0, 123456, tzinfo=ZoneInfo("Europe/Paris"))
    job = await (await greet.options(at=moment).submit("Ada")).status()
    assert (job.state, job.due_at) == ("scheduled", moment)


async def test_a_delay_counts_from_the_databases_now(sandbox):
    for delay in (3600, timedelta(hours=1)):
        handle = await sandbox.app.submit("elsewhere", {}, delay=delay)
        job = await handle.status()
        assert (job.state, job.due_at) == ("scheduled", sandbox.now() + timedelta(hours=1))


async def test_a_moment_in_the_past_is_due_at_once_and_keeps_its_place_in_line(app, greet):
    moment = datetime(2020, 1, 1, tzinfo=UTC)
    job = await (await greet.options(at=moment).submit("Ada")).status()
    assert (job.state, job.due_at) == ("ready", moment)


async def test_plain_code_submits_as_well(app, greet):
    handle = await asyncio.to_thread(greet.submit_sync, "Ada", times=2)
    assert (await app.jobs.get(handle.id)).payload == {"name": "Ada", "times": 2}
    by_name = await asyncio.to_thread(app.submit_sync, "greet", {"name": "Alan"})
    assert (await asyncio.to_thread(by_name.status_sync)).payload == {"name": "Alan"}


async def test_a_task_that_lives_elsewhere_is_submitted_by_name_with_its_registered_defaults(app):
    await register(app, "resize", queue="heavy", needs="gpu", priority=4, max_attempts=9)
    job = await (await app.submit("resize", {"path": "a.png"})).status()
    assert (job.queue, job.needs, job.priority, job.max_attempts) == ("heavy", ("gpu",), 4, 9)


# -- many jobs


async def test_10_000_jobs_are_stored_in_one_call(app, greet):
    handles = await greet.submit_many((f"n{n}",) for n in range(10_000))
    assert len({handle.id for handle in handles}) == 10_000
    assert await app.jobs.count() == {"ready": 10_000}
    job = await handles[1234].status()
    assert job.payload == {"name": "n1234"}


async def test_10_000_jobs_for_later_are_scheduled(app, greet):
    await greet.options(delay=3600).submit_many([{"name": "Ada", "times": 3}] * 10_000)
    assert await app.jobs.count() == {"scheduled": 10_000}


@pytest.mark.parametrize("count", [3, 300])
@pytest.mark.parametrize("later", [False, True])
async def test_a_small_batch_and_a_copy_store_the_same(app, sandbox, count, later):
    app = sandbox.app

    @app.task(queue="heavy", needs=["gpu", "avx"], priority=7, timeout=5, guarantee="exactly_once")
    async def render(path: str) -> None: ...

    moment = sandbox.now() + timedelta(days=1 if later else -1)
    await render.options(at=moment, tags=["t"]).submit_many(["a"] * count)
    schema = app.settings.schema
    async with (await app.store()).database.connection() as connection:
        rows = await connection.fetch(
            f"select distinct namespace, lane, task, state, priority, guarantee, max_attempts,"
            f" timeout, due_at, created_at, key, payload::text, headers::text"
            f" from {schema}.job"
        )
        if later:
            check = f"select bool_and(shard = {schema}.shard_of(id, 128)) from {schema}.future"
        else:
            check = f"select bool_and(rank = {schema}.rank(due_at, priority)) from {schema}.present"
        assert await connection.fetchval(check) is True
        lanes = await connection.fetch(f"select lane, queue, needs from {schema}.lane")
    assert [tuple(row) for row in rows] == [
        ("default", "default/heavy+avx+gpu", "render", 2 if later else 3, 7, 3, 5, 5.0, moment,
         sandbox.now(), None, '{"path":"a"}', '{"tags":["t"]}')
    ]  # fmt: skip
    assert [tuple(row) for row in lanes] == [("default/heavy+avx+gpu", "heavy", ["avx", "gpu"])]


async def test_a_batch_with_a_bad_call_stores_none_of_it(app, greet):
    with pytest.raises(InvalidArguments, match="greet"):
        await greet.submit_many([("Ada",), ("Alan", "often")])
    assert await everything(app) == []


async def test_one_callers_bad_job_doesnt_fail_others_who_submit_at_the_same_time(app, greet):
    answers = await asyncio.gather(
        greet.submit("Ada"), app.submit("not a name"), greet.submit("Alan"), return_exceptions=True
    )
    assert isinstance(answers[1], SubmitError)
    assert {job.payload["name"] for job in await everything(app)} == {"Ada", "Alan"}


async def test_many_jobs_cant_share_one_key(greet):
    with pytest.raises(InvalidArguments, match="one key to many"):
        await greet.options(key="k").submit_many(["Ada", "Alan"])


async def test_python_and_sql_agree_on_rank_shard_and_lane(app):
    moments = [
        datetime(2000, 1, 1, tzinfo=UTC),
        datetime(1999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2026, 10, 25, 2, 30, 0, 1, tzinfo=ZoneInfo("Europe/Berlin")),
        datetime(2150, 2, 28, 12, 0, 0, 123457, tzinfo=timezone(timedelta(hours=-9, minutes=-30))),
        datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
    ]
    priorities = [0, 1, -1, 1000, -1000, 37]
    ids = [new_id() for _ in range(50)] + [UUID(int=0), UUID(int=2**128 - 1)]
    needs = [(), ("gpu",), ("gpu", "avx"), ("b", "a", "b"), ("Z", "a", "_", "0", "a.b", "a-b")]
    schema = app.settings.schema
    async with (await app.store()).database.connection() as connection:
        ranks = await connection.fetch(
            f"select {schema}.rank(d, p) from unnest($1::timestamptz[], $2::int[]) as x(d, p)",
            moments, priorities,
        )  # fmt: skip
        shards = await connection.fetch(
            f"select {schema}.shard_of(i, s) from unnest($1::uuid[]) with ordinality as x(i, place)"
            ", unnest(array[1, 7, 128, 4096]) as s order by place, s",
            ids,
        )
        lanes = [
            await connection.fetchval(f"select {schema}.lane('ns', 'q', $1)", list(each))
            for each in needs
        ]
    assert [row[0] for row in ranks] == list(map(rank_of, moments, priorities))
    assert [row[0] for row in shards] == [shard_of(i, s) for i in ids for s in (1, 7, 128, 4096)]
    assert lanes == [lane_name("ns", "q", each) for each in needs]
