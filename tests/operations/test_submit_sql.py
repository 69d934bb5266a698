"""Submitting by plain SQL."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from rota import (
    Retry,
)
from tests.support.jobs import everything, register


@pytest.fixture
async def sql(app, database_url):
    connection = await asyncpg.connect(database_url)

    async def run(call: str) -> Any:
        return await connection.fetchval(f"select {app.settings.schema}.{call}")

    yield run
    await connection.close()


async def test_sql_submits_with_rotas_defaults(app, sql):
    job = await app.jobs.get(await sql("""submit('greet', '{"name": "Ada"}')"""))
    assert (job.state, job.task, job.payload) == ("ready", "greet", {"name": "Ada"})
    assert (job.queue, job.priority, job.max_attempts) == ("default", 0, 5)
    assert (job.guarantee, job.timeout, job.id.version) == ("at_least_once", None, 7)


async def test_sql_submits_with_the_tasks_registered_defaults_and_its_own_options(app, sql):
    await register(app, "resize", queue="heavy", needs="avx+gpu", priority=4, max_attempts=9)
    job = await app.jobs.get(await sql("submit('resize')"))
    assert (job.queue, job.needs, job.priority) == ("heavy", ("avx", "gpu"), 4)
    assert (job.max_attempts, job.payload) == (9, {})
    job = await app.jobs.get(
        await sql(
            "submit('resize', delay => '1 hour', priority => 1, queue => 'light', needs => '{}',"
            " max_attempts => 2, timeout => '90 seconds', guarantee => 'exactly_once',"
            """ headers => '{"tags": ["t"]}', key => 'k')"""
        )
    )
    assert (job.state, job.queue, job.needs, job.priority) == ("scheduled", "light", (), 1)
    assert (job.max_attempts, job.timeout, job.guarantee) == (2, 90.0, "exactly_once")
    assert (job.headers, job.key) == ({"tags": ["t"]}, "k")
    assert job.due_at - job.created_at == timedelta(hours=1)


async def test_sql_and_python_share_keys_and_their_notion_of_the_same_content(app, greet, sql):
    first = await greet.options(key="k").submit("Ada", times=2)
    again = await sql("""submit('greet', '{"times": 2, "name": "Ada"}', key => 'k')""")
    assert again == first.id
    with pytest.raises(asyncpg.PostgresError, match=f"already names job {first.id}") as caught:
        await sql("submit('greet', key => 'k')")
    assert caught.value.sqlstate == "RT002"
    assert len(await everything(app)) == 1


SQL_REFUSED = [
    ("submit('greet', at => now(), delay => '1 hour')", "at or delay, not both"),
    ("submit('greet', guarantee => 'twice')", "'twice' is not one of at_least_once"),
    ("submit('not a name')", "task 'not a name' is not a usable name"),
    ("submit(null)", "task NULL is not a usable name"),
    ("submit('greet', '[1]')", "payload must be a JSON object"),
    ("submit('greet', queue => 'a/b')", "queue 'a/b' is not a usable name"),
    ("submit('greet', needs => '{a+b}')", "holds something that is not a usable name"),
    ("submit('greet', key => '')", "key must be 1 to 255"),
    ("submit('greet', max_attempts => 0)", "max_attempts must be"),
    ("submit('greet', timeout => '0 seconds')", "timeout must be above 0"),
    ("submit('greet', at => 'infinity')", "the due time must be finite"),
    ("submit('greet', at => '0044-03-15 BC')", "is not in the years 1970 to 9998"),
    ("submit('greet', at => '20000-01-01')", "20000-01-01 .* is not in the years 1970 to 9998"),
    ("submit('greet', delay => '100000 years')", "is not in the years 1970 to 9998"),
    ("submit('greet', headers => '[]')", "headers must be a JSON object"),
    ("submit('greet', namespace => 'a/b')", "namespace 'a/b' is not a usable name"),
    ("submit('greet', jsonb_build_object('v', repeat('x', 1000000)))", "the limit is 1000000"),
]


async def test_sql_refuses_what_must_not_be_stored_and_says_why(app, sql):
    for call, says in SQL_REFUSED:
        with pytest.raises(asyncpg.PostgresError, match=says) as caught:
            await sql(call)
        assert caught.value.sqlstate == "RT001", call
    assert await everything(app) == []


@pytest.mark.parametrize("ended", ["succeeded", "failed", "scheduled"])
async def test_plain_sql_with_an_id_that_exists_already_stores_no_second_job(sandbox, ended):
    """Whoever brings an id may be repeating a submit whose answer was lost."""

    @sandbox.app.task(retry=Retry(max_attempts=1))
    async def greet() -> None:
        if ended == "failed":
            raise OSError

    options = {"delay": 3600.0} if ended == "scheduled" else {}
    first = await greet.options(**options).submit()
    await sandbox.run_due()
    store = await sandbox.app.store()
    schema = sandbox.app.settings.schema
    body = json.dumps([{"id": str(first.id), "task": "greet"}])
    async with store.database.connection() as connection:
        rows = await connection.fetch(f"select job_id from {schema}.submit_jobs($1)", body)
    assert [row["job_id"] for row in rows] == [first.id]
    assert [job.state for job in await sandbox.jobs()] == [ended]
