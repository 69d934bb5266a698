"""Schema versions: made once, by whoever comes first, and refused when they don't fit."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from importlib import resources
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest

from rota import App, SchemaMismatch
from rota.store import migrate, sql
from rota.store.migrate import CODE_VERSION, FUNCTIONS, known_migrations
from rota.store.sql import function_statements
from tests.support.places import ROTA


@pytest.fixture
async def connection(database_url):
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


@pytest.fixture
async def schema(connection):
    """A name that nothing bears yet."""
    name = f"other_{uuid4().hex[:8]}"
    yield name
    await connection.execute(f"drop schema if exists {name} cascade")


@pytest.fixture
async def app(database_url, schema):
    app = App(database_url=database_url, schema=schema)
    yield app
    await app.close()


async def execute(url, statement):
    connection = await asyncpg.connect(url)
    await connection.execute(statement)
    await connection.close()


def reading(added, text):
    """The files as they are, and one more."""
    return lambda asked: text if asked == added else _migration_text(asked.name)


FILES = [migration.name for migration in known_migrations() if migration.phase == "pre"]
EVERYTHING = [*FILES, FUNCTIONS]


async def test_a_fresh_database_is_made_usable_under_any_schema_name(app, schema, connection):
    assert await app.migrate() == EVERYTHING
    assert await connection.fetchval(f"select count(*) from {schema}.migration") == len(EVERYTHING)
    handle = await app.submit("greet", {"name": "Ada"})
    assert (await handle.status()).state == "ready"
    by_sql = await connection.fetchval(f"select {schema}.submit('greet')")
    assert (await app.jobs.get(by_sql)).state == "ready"


async def test_nothing_outside_the_schema_is_made(app, schema, connection):
    query = (
        "select n.nspname || '.' || c.relname from pg_class as c"
        " join pg_namespace as n on n.oid = c.relnamespace"
        " where n.nspname not like 'pg_%' and n.nspname <> $1 and n.nspname not like 'rota_test_%'"
        " union all select n.nspname || '.' || p.proname from pg_proc as p"
        " join pg_namespace as n on n.oid = p.pronamespace"
        " where n.nspname not like 'pg_%' and n.nspname <> $1 and n.nspname not like 'rota_test_%'"
        " order by 1"
    )
    before = await connection.fetch(query, schema)
    await app.migrate()
    assert await connection.fetch(query, schema) == before


async def test_migrating_twice_does_nothing_and_keeps_what_is_there(app):
    await app.migrate()
    handle = await app.submit("greet")
    assert await app.migrate() == []
    assert (await handle.status()).state == "ready"


async def test_of_five_that_race_one_migrates(database_url, schema):
    apps = [App(database_url=database_url, schema=schema) for _ in range(5)]
    answers = await asyncio.gather(*(app.migrate() for app in apps))
    assert sorted(answers, key=len) == [[], [], [], [], EVERYTHING]
    for app in apps:
        await app.close()


async def test_a_migration_that_fails_leaves_nothing(app, schema, connection):
    await connection.execute(f"create schema {schema}; create table {schema}.present (id int)")
    with pytest.raises(SchemaMismatch, match=r"0001_jobs.pre.sql .* already exists"):
        await app.migrate()
    tables = await connection.fetch("select tablename from pg_tables where schemaname = $1", schema)
    assert [row[0] for row in tables] == ["present"]


async def test_who_works_meanwhile_is_let_through(app, schema, connection, monkeypatch):
    """It wants what he has, and he wants what it has: the migration gives way, and tries again."""
    await app.migrate()
    added = migrate.Migration(9999, "pre", "9999_added.pre.sql")
    files = [*migrate.known_migrations(), added]
    monkeypatch.setattr(migrate, "known_migrations", lambda: files)
    # Slow in between, so that he waits for it before it waits for him: the server would end him.
    text = f"""alter table {schema}.node add column a int; select pg_sleep(0.5);
        alter table {schema}.batch add column a int"""
    monkeypatch.setattr(migrate, "_source", reading(added, text))
    async with connection.transaction():
        await connection.execute(f"lock table {schema}.batch in row exclusive mode")
        migrating = asyncio.create_task(app.migrate())
        has = """select from pg_locks where granted and relation = $1::regclass
            and mode = 'AccessExclusiveLock'"""
        while not await connection.fetch(has, f"{schema}.node"):
            await asyncio.sleep(0.01)
        await connection.execute(f"lock table {schema}.node in row exclusive mode")
        assert not migrating.done()
    assert await migrating == [added.name]


async def test_a_missing_schema_is_refused_with_what_to_run(app, schema):
    with pytest.raises(SchemaMismatch, match=f"no Rota schema '{schema}'. Run `rota migrate`"):
        await app.submit("greet")


async def test_an_older_schema_is_refused_with_what_is_missing(app, schema, connection):
    await app.migrate()
    await connection.execute(f"delete from {schema}.migration where name = $1", FILES[-1])
    with pytest.raises(SchemaMismatch, match=f"older than this code: {FILES[-1]} not applied"):
        await app.submit("greet")


async def test_a_schema_that_only_newer_code_can_use_is_refused(app, schema, connection):
    await app.migrate()
    insert = f"insert into {schema}.migration (checksum, name, version, phase, oldest_code) values"
    newer = CODE_VERSION + 1
    await connection.execute(f"{insert} ('x', '0999_added.pre.sql', {newer}, 'pre', 1)")
    assert await app.submit("greet")  # what was only added is none of our business
    await app.close()
    await connection.execute(f"{insert} ('x', '0999_taken.post.sql', {newer}, 'post', {newer})")
    with pytest.raises(SchemaMismatch, match=f"version {newer} or newer.*Upgrade the rota package"):
        await app.submit("greet")


async def test_functions_are_applied_again_when_their_text_has_changed(
    app, schema, connection, monkeypatch
):
    await app.migrate()
    label = f"select {schema}.state_label(4::smallint)"
    assert await connection.fetchval(label) == "running"
    with monkeypatch.context() as patch:
        others = "'a', 'b', 'c', 'at work'"
        texts = tuple(text.replace("{state.labels}", others) for text in sql._texts("functions"))
        patch.setattr(sql, "_texts", lambda _: texts)
        patch.setattr(migrate, "checksum_of_functions", lambda: "another")
        assert await app.migrate() == [FUNCTIONS]
        assert await connection.fetchval(label) == "at work"
        assert await app.migrate() == []
    assert await app.migrate() == [FUNCTIONS]
    assert await connection.fetchval(label) == "running"


async def test_an_older_release_leaves_the_functions_of_a_newer_one(app, schema, connection):
    await app.migrate()
    newer = (
        f"update {schema}.migration set version = version + 1, checksum = 'newer' where name = $1"
    )
    await connection.execute(newer, FUNCTIONS)
    assert await app.migrate() == []
    assert await app.submit("greet")


async def test_a_migration_may_use_a_function_that_is_new_with_it(
    app, schema, connection, monkeypatch
):
    await app.migrate()
    added = migrate.Migration(9999, "pre", "9999_added.pre.sql")
    files = [*known_migrations(), added]
    monkeypatch.setattr(migrate, "known_migrations", lambda: files)
    text = f"alter table {schema}.node add column luck int default {schema}.luck()"
    monkeypatch.setattr(migrate, "_source", reading(added, text))
    new = f"create or replace function {schema}.luck() returns int language sql as 'select 7';"
    statements = [*function_statements(schema), new]
    monkeypatch.setattr(migrate, "function_statements", lambda _: statements)
    monkeypatch.setattr(migrate, "checksum_of_functions", lambda: "another")
    assert await app.migrate() == [added.name, FUNCTIONS]


async def test_a_trigger_may_use_what_a_later_file_adds_and_disturbs_nobody_before(
    app, schema, connection, monkeypatch
):
    await app.migrate()
    files = [migrate.Migration(n, "pre", f"{n}_added.pre.sql") for n in (9998, 9999)]
    texts = {
        files[0]: """create table rota.calls (n bigint);
create trigger count_calls after insert on rota.setting
    for each row execute function rota.count_calls();
insert into rota.calls values (0);""",
        files[1]: "alter table rota.calls add column weight int not null default 2;",
    }
    monkeypatch.setattr(migrate, "known_migrations", lambda: [*known_migrations(), *files])
    own = lambda asked: texts.get(asked) or _migration_text(asked.name)  # noqa: E731
    monkeypatch.setattr(migrate, "_source", own)
    new = f"""create or replace function {schema}.count_calls() returns trigger language plpgsql as $$
        begin update {schema}.calls set n = n + weight; return null; end $$;"""
    statements = [*function_statements(schema), new]
    monkeypatch.setattr(migrate, "function_statements", lambda _: statements)
    monkeypatch.setattr(migrate, "checksum_of_functions", lambda: "another")
    step, keys = migrate._step, iter(range(100))

    async def step_and_write(*arguments):
        """Others work after each transaction of the migration."""
        done = await step(*arguments)
        key = f"written-{next(keys)}"
        await connection.execute(f"insert into {schema}.setting values ($1, 1)", key)
        return done

    monkeypatch.setattr(migrate, "_step", step_and_write)
    assert await app.migrate() == [*(each.name for each in files), FUNCTIONS]
    # After both files nothing is counted yet; after the functions, and the look that found nothing:
    assert await connection.fetchval(f"select n from {schema}.calls") == 4
    assert (await app.migrate()).mended == []


async def test_a_function_with_more_parameters_takes_the_place_of_another_at_once(
    app, schema, connection, monkeypatch
):
    await app.migrate()
    old = "create function rota.luck(n int) returns int language sql as 'select n'"
    await connection.execute(old.replace("rota.", f"{schema}."))
    added = migrate.Migration(9999, "pre", "9999_added.pre.sql")
    monkeypatch.setattr(migrate, "known_migrations", lambda: [*known_migrations(), added])
    text = "drop function if exists rota.luck(int);\nalter table rota.node add column luck int;"
    monkeypatch.setattr(migrate, "_source", reading(added, text))
    new = (
        f"create or replace function {schema}.luck(n int, m int default 0) returns int language sql"
        f" as $$ select n + coalesce((select max(o.luck) from {schema}.node as o), 10) $$;"
    )
    statements = [*function_statements(schema), new]
    monkeypatch.setattr(migrate, "function_statements", lambda _: statements)
    monkeypatch.setattr(migrate, "checksum_of_functions", lambda: "another")
    step, seen = migrate._step, []

    async def step_and_call(*arguments):
        done = await step(*arguments)
        seen.append(await connection.fetchval(f"select {schema}.luck(1)"))
        return done

    monkeypatch.setattr(migrate, "_step", step_and_call)
    assert await app.migrate() == [added.name, FUNCTIONS]
    assert seen == [1, 11, 11]


async def test_a_file_that_was_changed_after_its_use_is_named(app, schema, connection):
    await app.migrate()
    name = known_migrations()[2].name
    change = f"update {schema}.migration set checksum = 'of other contents' where name = $1"
    await connection.execute(change, name)
    with pytest.raises(SchemaMismatch, match=f"migration {name}: the file differs"):
        await app.migrate()
    with pytest.raises(SchemaMismatch, match=f"migration {name}: the file differs"):
        await app.submit("greet")


async def test_a_file_that_was_renamed_after_its_use_is_named(app, schema, connection):
    await app.migrate()
    rename = f"update {schema}.migration set name = '0004_plans.pre.sql' where name like '0004%'"
    await connection.execute(rename)
    with pytest.raises(SchemaMismatch, match=r"0004_plans.pre.sql was applied .* renamed"):
        await app.migrate()
    with pytest.raises(SchemaMismatch, match=r"0004_plans.pre.sql was applied .* renamed"):
        await app.submit("greet")


async def test_what_a_newer_release_applied_is_no_concern_of_this_one(app, schema, connection):
    await app.migrate()
    newer = "insert into {}.migration values ('9999_new.pre.sql', 9999, 'pre', 1, 'x')"
    await connection.execute(newer.format(schema))
    assert await app.migrate() == []
    assert await app.submit("greet")


def test_the_command_line_names_such_a_file_without_a_traceback(schema, database_url):
    environ = {**os.environ, "ROTA_DATABASE_URL": database_url, "ROTA_SCHEMA": schema}
    subprocess.run([ROTA, "migrate"], env=environ, check=True, capture_output=True)
    rename = f"update {schema}.migration set name = '0004_plans.pre.sql' where name like '0004%'"
    asyncio.run(execute(database_url, rename))
    done = subprocess.run([ROTA, "migrate"], env=environ, capture_output=True, text=True)
    assert done.returncode == 1
    assert "0004_plans.pre.sql" in done.stderr
    assert "Traceback" not in done.stderr


async def test_what_is_mended_and_applied_is_in_the_audit_log(app, schema, connection, monkeypatch):
    await app.migrate()
    assert await connection.fetch(f"select from {schema}.audit") == []  # nothing was changed yet
    await connection.execute(f"drop trigger audit_is_kept on {schema}.audit")
    done = await app.migrate()
    assert (done, done.mended) == ([], ["trigger audit_is_kept on audit"])
    [row] = await connection.fetch(f"select * from {schema}.audit")
    assert (row["action"], row["interface"]) == ("migrate", "python")
    assert json.loads(row["after"]) == {"applied": [], "mended": done.mended}


async def test_what_a_migration_drops_is_not_missed(app, schema, connection, monkeypatch):
    await app.migrate()
    added = migrate.Migration(9999, "post", "9999_dropped.post.sql")
    files = [*known_migrations(), added]
    monkeypatch.setattr(migrate, "known_migrations", lambda: files)
    monkeypatch.setattr(migrate, "CODE_VERSION", 9999)
    text = "drop trigger audit_is_kept on rota.audit"
    monkeypatch.setattr(migrate, "_source", reading(added, text))
    assert await app.migrate(include_post=True) == [added.name]
    assert (await app.migrate()).mended == []
    assert await app.submit("greet")


def test_every_function_is_defined_once():
    signatures = [text[: text.index(")")] for text in function_statements("rota")]
    assert len(signatures) > 40
    assert len(signatures) == len(set(signatures))
    assert all(not re.search("create .*function", _migration_text(name)) for name in FILES)


def _migration_text(name: str) -> str:
    return (resources.files("rota.store") / "schema" / name).read_text("utf-8")


def test_no_migration_was_changed_since_it_was_first_committed():
    """Not even a comment: databases record the checksums, and refuse a release with others."""
    lines = Path(__file__).with_name("migrations.sha256").read_text("utf-8").splitlines()
    recorded = {name: checksum for checksum, name in map(str.split, lines)}
    assert {each.name: migrate.checksum_of(each) for each in known_migrations()} == recorded
