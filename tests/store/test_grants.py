"""A submit in the caller's own transaction, under a database role that may do nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest

from rota import App, ConfigError, QueueFull
from rota.store.depths import DepthStore
from rota.store.grants import PURPOSES, grant_statements
from tests.support.command_line import run


@pytest.fixture
async def role(database_url: str) -> AsyncIterator[str]:
    """One that has nothing, with a name that needs quotes."""
    name = f'shop "{uuid4().hex[:8]}'
    quoted = name.replace('"', '""')
    connection = await asyncpg.connect(database_url)
    await connection.execute(f'create role "{quoted}" nologin')
    yield name
    await connection.execute(f'drop owned by "{quoted}"; drop role "{quoted}"')
    await connection.close()


@pytest.fixture
async def connection(database_url: str, role: str) -> AsyncIterator[Any]:
    """Of somebody who is nothing but this role."""
    connection = await asyncpg.connect(database_url)
    quoted = role.replace('"', '""')
    await connection.execute(f'set session authorization "{quoted}"')
    yield connection
    await connection.close()


async def grant(app: App, role: str) -> None:
    async with (await app.store()).database.transaction() as owner:
        for statement in grant_statements("submit", role, app.settings.schema):
            await owner.execute(statement)


async def submit_one(app: App, connection: Any) -> Any:
    async with connection.transaction():
        return await app.submit("greet", {}, connection=connection)


async def submit_all(app: App, connection: Any) -> list[Any]:
    """Every kind of submit, in one transaction of the caller."""
    async with connection.transaction():
        given: list[dict[str, Any]] = [
            {}, {"delay": 3600}, {"key": "once"}, {"key": "once"}, {"queue": "new", "needs": ["gpu"]},
        ]  # fmt: skip
        handles = [await app.submit("greet", {}, connection=connection, **one) for one in given]
        by_sql = f"select {app.settings.schema}.submit('greet', '{{}}')"
        return [*(handle.id for handle in handles), await connection.fetchval(by_sql)]


async def test_a_role_without_grants_can_submit_nothing(app: App, connection: Any):
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await submit_one(app, connection)


async def test_a_role_with_the_grants_submits_in_its_own_transaction(
    app: App, role: str, connection: Any
):
    await grant(app, role)
    ids = await submit_all(app, connection)
    assert ids[2] == ids[3]
    stored = {job.id for job in await app.jobs.list()}
    assert stored == set(ids)


async def test_a_role_with_the_grants_can_do_nothing_else(app: App, role: str, connection: Any):
    await grant(app, role)
    await submit_all(app, connection)
    space = app.settings.schema
    for forbidden in (
        f"select from {space}.past", f"select from {space}.dead", f"select from {space}.api_token",
        f"select from {space}.user_account", f"select from {space}.audit", f"select from {space}.job",
        f"select from {space}.effect", f"delete from {space}.present",
        f"update {space}.future set priority = 9", f"insert into {space}.node default values",
        f"select {space}.trim_audit('infinity')", f"truncate {space}.queue",
        f"create table {space}.mine (id int)",
    ):  # fmt: skip
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(forbidden)


@pytest.mark.parametrize("task", ["rota.webhook", "rota.anything"])
async def test_a_role_with_the_grants_cannot_store_jobs_of_internal_tasks(
    app: App, role: str, connection: Any, task: str
):
    """By no function, and not by the tables themselves: a forged delivery would be signed."""
    await grant(app, role)
    await submit_all(app, connection)
    space = app.settings.schema
    one, keyed = {"task": task, "payload": {}}, {"task": task, "payload": {}, "key": "forged"}
    late = {"task": task, "payload": {}, "delay": 3600}
    for jobs in ([one], [keyed], [late], [one, one]):
        with pytest.raises(asyncpg.PostgresError, match="is internal"):
            await connection.fetch(f"select * from {space}.submit_jobs($1)", json.dumps(jobs))
    with pytest.raises(asyncpg.PostgresError, match="is internal"):
        await connection.fetchval(f"select {space}.submit($1)", task)
    for table, columns, value in (("present", "rank", "0"), ("future", "shard", "0")):
        insert = (
            f"insert into {space}.{table} (id, {columns}, due_at, namespace, lane, task, payload, "
            f"priority, guarantee, max_attempts) values ({space}.new_id(), {value}, {space}.now(), "
            "'default', 'default/default', $1, '{}', 0, 1, 5)"
        )
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="policy"):
            await connection.execute(insert, task)
        await connection.execute(insert, "own")  # it is the task that is refused
    assert await app.jobs.list(task=task) == []


async def test_grants_are_printed_and_applied_on_the_command_line(
    environ: dict[str, str], role: str, connection: Any
):
    shown = await asyncio.to_thread(run, "grants", role, "--json")
    assert shown.json["applied"] is False
    app = App()
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await submit_one(app, connection)
    applied = await asyncio.to_thread(run, "grants", role, "--apply", "--json")
    assert applied.json["statements"] == shown.json["statements"]
    assert await submit_one(app, connection)
    [entry] = (await asyncio.to_thread(run, "audit", "--action", "grant", "--json")).json
    assert (entry["subject"], entry["after"]) == (f"role {role}", {"for": "submit"})
    await app.close()


def test_a_role_that_is_not_there_is_named(environ: dict[str, str]):
    answer = run("grants", "nosuchrole", "--apply", "--json")
    assert answer.error["type"] == "NotFound"
    assert "create role nosuchrole" in answer.error["message"]
    assert json.loads(run("grants", "nosuchrole", "--json").out)["applied"] is False


def test_purposes_and_names_are_checked():
    assert {"submit", "submit-unique"} <= set(PURPOSES)
    for purpose, role in (("rule", "shop"), ("submit", ""), ("submit", "x" * 64)):
        with pytest.raises(ConfigError):
            grant_statements(purpose, role, "rota")


async def test_a_role_with_the_grants_for_unique_jobs_submits_them(
    app: App, role: str, connection: Any
):
    async with (await app.store()).database.transaction() as owner:
        for statement in grant_statements("submit-unique", role, app.settings.schema):
            await owner.execute(statement)
    given: list[dict[str, Any]] = [
        {"unique": "waiting"}, {"unique": "unfinished", "key": "k"}, {"debounce": 60},
        {"unique": "waiting", "unique_conflict": "replace"}, {"throttle": 60},
    ]  # fmt: skip
    for number, options in enumerate(given):
        async with connection.transaction():
            submits = [
                await app.submit(
                    "greet", {}, connection=connection, unique_key=str(number), **options
                )
                for _ in range(2)
            ]
        assert submits[0].id == submits[1].id


async def test_a_role_that_only_submits_is_told_of_a_full_queue(
    app: App, role: str, connection: Any
):
    """And not of the rights that it lacks on what counts jobs."""
    await grant(app, role)
    await app.queues.set_max_depth("default", 1)
    depths = DepthStore(
        (await app.store()).database
    )  # a scheduler's part: callers' submits add nothing up
    assert not (await submit_one(app, connection)).warnings
    await depths.fold("default")
    assert (await submit_one(app, connection)).warnings
    await depths.fold("default")
    with pytest.raises(QueueFull) as caught:
        await submit_one(app, connection)
    assert (caught.value.queue, caught.value.max_depth) == ("default", 1)
    with pytest.raises(asyncpg.PostgresError) as raised:
        await connection.fetchval(f"select {app.settings.schema}.submit('greet', '{{}}')")
    assert raised.value.sqlstate == "RT004"


async def test_an_app_of_a_role_that_only_submits_is_told_of_a_full_queue(
    app: App, role: str, database_url: str
):
    """In Rota's own transactions: a refusal adds up what has come, which the role may not."""
    await grant(app, role)
    await app.queues.set_max_depth("default", 1)
    quoted = role.replace('"', '""')
    async with (await app.store()).database.connection() as owner:
        await owner.execute(f'alter role "{quoted}" login')
    url = urlsplit(database_url)
    where = url._replace(netloc=f"{quote(role, safe='')}@{url.netloc.rpartition('@')[2]}")
    theirs = App(database_url=urlunsplit(where), schema=app.settings.schema)
    try:
        await theirs.submit("greet", {})
        for _ in range(2):
            with pytest.raises(QueueFull) as caught:
                await theirs.submit("greet", {})
            assert caught.value.depth == 1
        with pytest.raises(QueueFull):
            await theirs.submit("greet", {}, block=True, block_timeout=0.1)
    finally:
        await theirs.close()
