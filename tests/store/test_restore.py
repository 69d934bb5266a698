"""Backup and restore, from one PostgreSQL to a fresh other one, as the guide says."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from proof.replicas import Replica
from rota import App, SchemaMismatch
from rota.node import Node
from rota.store.embedded.server import find_binaries
from rota.store.row_security import RowSecurity
from rota.store.sql import load_queries

_FAST = "fsync = off\nsynchronous_commit = off\nfull_page_writes = off\n"


@pytest.fixture(scope="module")
def folder() -> Any:
    folder = Path(tempfile.mkdtemp(prefix="rota-restore-"))
    folder.chmod(0o711)  # root's server runs as another user, who must be able to pass
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
async def fresh(folder: Path) -> AsyncIterator[Replica]:
    """A server on which Rota was never seen."""
    server = Replica(folder, f"fresh-{uuid4().hex[:6]}")
    await server.make(_FAST)
    yield server
    await server.stop()


@pytest.fixture
async def source(database_url: str) -> AsyncIterator[App]:
    """Something of everything, on the server that is backed up."""
    app = App(database_url=database_url, schema=f"restore_{uuid4().hex[:8]}")
    add_tasks(app)
    await app.migrate()
    await app.schedule("nightly", "greet", cron="0 3 * * *")
    await app.webhooks.allow("127.0.0.1")
    await app.webhooks.add("http://127.0.0.1:9/hook")
    async with Node(app).running():
        await (await app.submit("greet", {"name": "Ada"})).result(timeout=60)
        await (await app.submit("fail", {}, max_attempts=1)).wait(60)
    await app.submit("greet", {"name": "later"}, delay=3600)
    await app.submit("greet", {"name": "now"})
    yield app
    connection = await asyncpg.connect(database_url)
    await connection.execute(f"drop schema {app.settings.schema} cascade")
    await connection.close()
    await app.close()


def add_tasks(app: App) -> list[str]:
    greeted: list[str] = []

    @app.task
    async def greet(name: str = "") -> str:
        greeted.append(name)
        return name

    @app.task
    async def fail() -> None:
        raise ValueError("no")

    return greeted


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(find_binaries() / program), *arguments]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return subprocess.run(command, env=environ, capture_output=True, text=True)


async def back_up(app: App, folder: Path) -> Path:
    file = folder / f"{app.settings.schema}.dump"
    done = await asyncio.to_thread(
        run, "pg_dump", "--format=custom", f"--schema={app.settings.schema}", f"--file={file}",
        app.settings.database_url or "",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return file


async def restore(file: Path, server: Replica) -> str:
    """What it complained of."""
    done = await asyncio.to_thread(run, "pg_restore", f"--dbname={server.url}", str(file))
    return done.stderr


_POLICIES = """
    select tablename, policyname, permissive, roles::text, cmd, qual, with_check
    from pg_policies where schemaname = $1 order by 1, 2"""
_FUNCTIONS = """
    select proname::text, prosrc from pg_proc
    where pronamespace = $1::text::regnamespace order by 1, 2"""


async def snapshot(url: str, schema: str) -> dict[str, Any]:
    """Rows, objects, policies, functions and grants."""
    connection = await asyncpg.connect(url)
    try:
        objects = await connection.fetch(load_queries(schema)["schema_objects"])
        tables = [row["name"] for row in objects if row["kind"] == "table"]
        counts = {
            table: await connection.fetchval(f"select count(*) from {schema}.{table}")
            for table in tables
            if table not in ("node", "audit", "setting")  # which starting and mending change
        }
        return {
            "rows": counts,
            "objects": sorted((row["kind"], row["name"]) for row in objects),
            "policies": [tuple(row) for row in await connection.fetch(_POLICIES, schema)],
            "functions": [tuple(row) for row in await connection.fetch(_FUNCTIONS, schema)],
        }
    finally:
        await connection.close()


async def works(app: App) -> list[str]:
    greeted = add_tasks(app)
    await app.connector.recover()
    async with Node(app).running():
        await (await app.submit("greet", {"name": "restored"})).result(timeout=60)
        await app.close()
    return greeted


async def test_restored_with_its_roles_everything_is_as_it_was(
    source: App, fresh: Replica, folder: Path
):
    schema = source.settings.schema
    file = await back_up(source, folder)
    before = await snapshot(source.settings.database_url or "", schema)
    connection = await fresh.connect()
    await connection.execute("create role rota_tenant nologin")
    await connection.close()
    assert await restore(file, fresh) == ""
    assert await snapshot(fresh.url, schema) == before
    app = App(database_url=fresh.url, schema=schema)
    done = await app.migrate()
    assert (done, done.mended, done.advice) == ([], [], None)
    assert "restored" in await works(app)


async def test_restored_without_its_roles_it_is_noticed_and_mended(
    source: App, fresh: Replica, folder: Path
):
    schema = source.settings.schema
    file = await back_up(source, folder)
    before = await snapshot(source.settings.database_url or "", schema)
    assert 'role "rota_tenant" does not exist' in await restore(file, fresh)
    lost = await snapshot(fresh.url, schema)
    assert lost["rows"] == before["rows"]
    assert len(lost["policies"]) < len(before["policies"])
    app = App(database_url=fresh.url, schema=schema)
    with pytest.raises(SchemaMismatch, match=r"has lost .*rota_tenant.*Run `rota migrate`"):
        await app.submit("greet")
    done = await app.migrate()
    assert "role rota_tenant" in done.mended
    assert "policy tenant on future" in done.mended
    assert await snapshot(fresh.url, schema) == before
    assert (await app.migrate()).mended == []
    assert "restored" in await works(app)


async def test_what_was_dropped_comes_back_and_is_told(fresh: Replica):
    app = App(database_url=fresh.url)
    await app.migrate()
    before = await snapshot(fresh.url, "rota")
    connection = await fresh.connect()
    await connection.execute(
        "drop policy tenant on rota.past; alter table rota.queue disable row level security;"
        "revoke select on rota.dead from rota_tenant; drop index rota.dead_finished;"
        "drop function rota.trim_audit(timestamptz); drop trigger audit_is_kept on rota.audit;"
        "drop view rota.job"
    )
    with pytest.raises(SchemaMismatch, match="has lost"):
        await app.submit("greet")
    done = await app.migrate()
    assert set(done.mended) >= {
        "policy tenant on past", "row security queue", "grant select on dead to rota_tenant",
        "index dead_finished", "function trim_audit", "trigger audit_is_kept on audit", "view job",
    }  # fmt: skip
    assert await snapshot(fresh.url, "rota") == before
    await connection.close()
    assert "restored" in await works(app)


async def test_a_table_that_is_gone_is_named_and_not_made_up(fresh: Replica):
    app = App(database_url=fresh.url)
    await app.migrate()
    connection = await fresh.connect()
    await connection.execute("drop table rota.dead cascade")
    await connection.close()
    with pytest.raises(SchemaMismatch, match="lacks table dead: rows are lost"):
        await app.migrate()
    await app.close()


async def test_without_the_right_to_make_roles_the_sql_to_run_is_told(fresh: Replica):
    connection = await fresh.connect()
    await connection.execute('create role "plain owner" login')
    await connection.execute('create database plain owner "plain owner"')
    await connection.close()
    url = f"postgresql://plain%20owner@{fresh.host}/plain"
    app = App(database_url=url)
    advice = (await app.migrate()).advice
    assert advice is not None
    sql = advice.split("`")[1]
    assert sql == 'create role rota_tenant nologin; grant rota_tenant to "plain owner";'
    superuser = await fresh.connect()
    await superuser.execute(sql)
    await superuser.close()
    assert (await app.migrate()).advice is None
    store = await app.store()
    assert (await RowSecurity.find(store.database)).enabled
    await app.close()


async def test_what_waits_in_a_paused_queue_can_be_chosen_from_after_a_restore(
    source: App, fresh: Replica, folder: Path
):
    """The guide's order: queues are paused before the first node starts."""
    schema = source.settings.schema
    await restore(await back_up(source, folder), fresh)
    app = App(database_url=fresh.url, schema=schema)
    await app.migrate()
    for queue in await app.queues.list():
        await app.queues.pause(queue.name)
    await app.connector.recover()
    greeted = add_tasks(app)
    async with Node(app).running():
        [waiting] = await app.jobs.list(state="ready", task="greet")
        await app.jobs.cancel(waiting.id)
        chosen = await app.submit("greet", {"name": "chosen"})
        for queue in await app.queues.list():
            await app.queues.resume(queue.name)
        await chosen.result(timeout=60)
    assert greeted == ["chosen"]
    await app.close()
