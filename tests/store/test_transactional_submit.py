"""Through the caller's own connection a job exists if and only if their transaction commits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg
import django
import psycopg
import pytest
import sqlalchemy
from django.conf import settings as django_settings
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, sessionmaker

from rota import App, ConfigError, KeyConflict, QueueFull, SchemaMismatch, SubmitError


class Undo(Exception):
    """Makes a caller's transaction roll back."""


@pytest.fixture
def greet(app: App) -> Any:
    @app.task
    async def greet(name: str) -> None: ...

    return greet


def sqlalchemy_url(url: str, driver: str) -> Any:
    """The same server, for SQLAlchemy; it wants a socket's folder where a host would be."""
    parts = psycopg.conninfo.conninfo_to_dict(url)
    return sqlalchemy.URL.create(
        f"postgresql+{driver}",
        username=parts.get("user"),
        password=parts.get("password"),
        database=parts.get("dbname"),
        query={"host": parts["host"], "port": str(parts.get("port", 5432))},
    )


# -- asynchronous connections: each opens one, and begins a transaction that Undo rolls back


class Asyncpg:
    async def transact(self, url: str, body: Callable[[Any], Any]) -> None:
        connection = await asyncpg.connect(url)
        try:
            async with connection.transaction():
                await body(connection)
        finally:
            await connection.close()


class AsyncpgFromAPool:
    async def transact(self, url: str, body: Callable[[Any], Any]) -> None:
        async with (
            asyncpg.create_pool(url, min_size=1) as pool,
            pool.acquire() as connection,
            connection.transaction(),
        ):
            await body(connection)


class PsycopgAsync:
    async def transact(self, url: str, body: Callable[[Any], Any]) -> None:
        async with await psycopg.AsyncConnection.connect(url) as connection:
            await body(connection)


class PsycopgAsyncWithDictRows:
    async def transact(self, url: str, body: Callable[[Any], Any]) -> None:
        rows = psycopg.rows.dict_row
        async with await psycopg.AsyncConnection.connect(url, row_factory=rows) as connection:
            await body(connection)


class SqlalchemyAsyncConnection:
    async def transact(self, url: str, body: Callable[[Any], Any]) -> None:
        engine = create_async_engine(sqlalchemy_url(url, "asyncpg"))
        try:
            async with engine.begin() as connection:
                assert isinstance(connection, AsyncConnection)
                await body(connection)
        finally:
            await engine.dispose()


class SqlalchemyAsyncSession:
    async def transact(self, url: str, body: Callable[[Any], Any]) -> None:
        engine = create_async_engine(sqlalchemy_url(url, "asyncpg"))
        try:
            async with AsyncSession(engine) as session, session.begin():
                await body(session)
        finally:
            await engine.dispose()


class SqlalchemyAsyncOverPsycopg:
    async def transact(self, url: str, body: Callable[[Any], Any]) -> None:
        engine = create_async_engine(sqlalchemy_url(url, "psycopg"))
        try:
            async with AsyncSession(engine) as session, session.begin():
                await body(session)
        finally:
            await engine.dispose()


ASYNC = [
    Asyncpg,
    AsyncpgFromAPool,
    PsycopgAsync,
    PsycopgAsyncWithDictRows,
    SqlalchemyAsyncConnection,
    SqlalchemyAsyncSession,
    SqlalchemyAsyncOverPsycopg,
]


# -- synchronous ones


@contextmanager
def psycopg_connection(url: str) -> Iterator[Any]:
    with psycopg.connect(url) as connection:
        yield connection


@contextmanager
def sqlalchemy_connection(url: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(sqlalchemy_url(url, "psycopg"))
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


@contextmanager
def sqlalchemy_session(url: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(sqlalchemy_url(url, "psycopg"))
    try:
        with Session(engine) as session, session.begin():
            yield session
    finally:
        engine.dispose()


def _configure_django(url: str) -> None:
    parts = psycopg.conninfo.conninfo_to_dict(url)
    if not django_settings.configured:
        django_settings.configure(
            DATABASES={
                "default": {
                    "ENGINE": "django.db.backends.postgresql",
                    "NAME": parts.get("dbname"),
                    "USER": parts.get("user"),
                    "PASSWORD": parts.get("password") or "",
                    "HOST": parts.get("host") or "",
                    "PORT": str(parts.get("port") or ""),
                }
            }
        )
        django.setup()


@contextmanager
def django_proxy(url: str) -> Iterator[Any]:
    """What people import: `from django.db import connection`."""
    _configure_django(url)
    from django.db import connection, transaction

    try:
        with transaction.atomic():
            yield connection
    finally:
        connection.close()


@contextmanager
def django_connection(url: str) -> Iterator[Any]:
    """What they look up: `connections["default"]`."""
    _configure_django(url)
    from django.db import connections, transaction

    try:
        with transaction.atomic():
            yield connections["default"]
    finally:
        connections["default"].close()


SYNC = [
    psycopg_connection,
    sqlalchemy_connection,
    sqlalchemy_session,
    django_proxy,
    django_connection,
]


@pytest.mark.parametrize("driver", ASYNC)
class TestAsynchronously:
    async def test_a_commit_makes_the_job_and_nobody_sees_it_before(
        self, app, greet, database_url, driver
    ):
        async def body(connection):
            handle = await greet.options(connection=connection).submit("Ada")
            assert await app.jobs.find(handle.id) is None

        await driver().transact(database_url, body)
        [job] = await app.jobs.list()
        assert (job.task, job.payload, job.state) == ("greet", {"name": "Ada"}, "ready")

    async def test_a_rollback_leaves_no_job(self, app, greet, database_url, driver):
        async def body(connection):
            await greet.options(connection=connection).submit("Ada")
            raise Undo

        with pytest.raises(Undo):
            await driver().transact(database_url, body)
        assert await app.jobs.list() == []

    async def test_many_jobs_commit_together(self, app, greet, database_url, driver):
        async def body(connection):
            await greet.options(connection=connection).submit_many(["Ada", "Alan", "Grace"])

        await driver().transact(database_url, body)
        assert {job.payload["name"] for job in await app.jobs.list()} == {"Ada", "Alan", "Grace"}

    async def test_a_conflict_leaves_the_callers_transaction_usable(
        self, app, greet, database_url, driver
    ):
        first = await greet.options(key="k").submit("Ada")

        async def body(connection):
            with pytest.raises(KeyConflict) as caught:
                await greet.options(key="k", connection=connection).submit("Alan")
            assert caught.value.job_id == str(first.id)
            await greet.options(key="k2", connection=connection).submit("Grace")

        await driver().transact(database_url, body)
        assert {job.payload["name"] for job in await app.jobs.list()} == {"Ada", "Grace"}

    async def test_what_the_database_refuses_is_told_as_a_submit_error(
        self, app, greet, database_url, driver
    ):
        async def body(connection):
            with pytest.raises(SubmitError, match="task 'not a name' is not a usable name"):
                await app.submit("not a name", {}, connection=connection)
            raise Undo

        with pytest.raises(Undo):
            await driver().transact(database_url, body)
        assert await app.jobs.list() == []

    async def test_a_full_queue_warns_and_at_twice_its_limit_refuses(
        self, app, greet, database_url, driver
    ):
        await app.queues.set_max_depth("default", 1)

        async def body(connection):
            mine = greet.options(connection=connection)
            handles = [await mine.submit("Ada"), await mine.submit("Alan")]
            assert [len(handle.warnings) for handle in handles] == [0, 1]
            with pytest.raises(QueueFull) as caught:
                await mine.submit("Grace")
            full = caught.value
            assert (full.queue, full.depth, full.max_depth) == ("default", 2, 1)
            assert full.retry_after
            raise Undo

        with pytest.raises(Undo):
            await driver().transact(database_url, body)

    async def test_a_database_without_rota_is_told_from_a_broken_one(
        self, make_app, database_url, driver
    ):
        elsewhere = make_app(schema="rota_is_not_here")

        async def body(connection):
            with pytest.raises(SchemaMismatch, match="rota migrate"):
                await elsewhere.submit("anything", {}, connection=connection)
            raise Undo

        with pytest.raises(Undo):
            await driver().transact(database_url, body)

    async def test_plain_code_is_told_to_await(self, greet, database_url, driver):
        async def body(connection):
            with pytest.raises(ConfigError, match="asynchronous connection: use `await submit"):
                greet.options(connection=connection).submit_sync("Ada")

        await driver().transact(database_url, body)


@pytest.mark.parametrize("opened", SYNC)
class TestSynchronously:
    """In a thread without an event loop, as plain code is; Django insists on it."""

    async def test_a_commit_makes_the_job(self, app, greet, database_url, opened):
        def plain_code():
            with opened(database_url) as connection:
                return greet.options(connection=connection).submit_sync("Ada")

        handle = await asyncio.to_thread(plain_code)
        [job] = await app.jobs.list()
        assert (job.id, job.task, job.payload) == (handle.id, "greet", {"name": "Ada"})

    async def test_a_rollback_leaves_no_job(self, app, greet, database_url, opened):
        def plain_code():
            with opened(database_url) as connection:
                greet.options(connection=connection).submit_sync("Ada")
                raise Undo

        with pytest.raises(Undo):
            await asyncio.to_thread(plain_code)
        assert await app.jobs.list() == []

    async def test_a_conflict_leaves_the_callers_transaction_usable(
        self, app, greet, database_url, opened
    ):
        def plain_code():
            with opened(database_url) as connection:
                with pytest.raises(KeyConflict):
                    greet.options(key="k", connection=connection).submit_sync("Alan")
                greet.options(key="k2", connection=connection).submit_sync("Grace")

        await greet.options(key="k").submit("Ada")
        await asyncio.to_thread(plain_code)
        assert {job.payload["name"] for job in await app.jobs.list()} == {"Ada", "Grace"}

    async def test_a_percent_sign_travels_unharmed(self, app, database_url, opened):
        def plain_code():
            with opened(database_url) as connection:
                app.submit_sync("elsewhere", {"rate": "100% %s :x"}, connection=connection)

        await asyncio.to_thread(plain_code)
        [job] = await app.jobs.list()
        assert job.payload == {"rate": "100% %s :x"}

    async def test_a_coroutine_is_told_to_use_submit_sync(self, greet, database_url, opened):
        def plain_code():
            with opened(database_url) as connection:
                asyncio.run(greet.options(connection=connection).submit("Ada"))

        with pytest.raises(ConfigError, match=r"synchronous connection: use submit_sync\(\)"):
            await asyncio.to_thread(plain_code)


class Stranger:
    """Not a connection of anything."""


async def test_an_unknown_kind_of_connection_is_refused_with_the_known_ones_named(greet):
    with pytest.raises(
        ConfigError, match=r"Stranger is not a supported connection.*asyncpg.*Django"
    ):
        await greet.options(connection=Stranger()).submit("Ada")
    with pytest.raises(
        ConfigError, match=r"Stranger is not a supported connection.*asyncpg.*Django"
    ):
        greet.options(connection=Stranger()).submit_sync("Ada")


async def test_a_connection_that_commits_by_itself_is_refused_as_a_transaction(
    app, greet, database_url
):
    refused = pytest.raises(
        ConfigError, match="in no transaction: what it executes is committed at once"
    )
    connection = await asyncpg.connect(database_url)
    with refused:
        await greet.options(connection=connection).submit("Ada")
    await connection.close()
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        with refused:
            await greet.options(connection=connection).submit("Ada")
        async with connection.transaction():
            await greet.options(connection=connection).submit("in a transaction")
    for driver in ("asyncpg", "psycopg"):
        engine = create_async_engine(
            sqlalchemy_url(database_url, driver), isolation_level="AUTOCOMMIT"
        )
        async with engine.connect() as connection, AsyncSession(engine) as session:
            with refused:
                await greet.options(connection=connection).submit("Ada")
            with refused:
                await greet.options(connection=session).submit("Ada")
        await engine.dispose()

    def plain_code() -> None:
        with psycopg.connect(database_url, autocommit=True) as connection, refused:
            greet.options(connection=connection).submit_sync("Ada")
        engine = sqlalchemy.create_engine(sqlalchemy_url(database_url, "psycopg"))
        autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
        with autocommit.connect() as connection, refused:
            greet.options(connection=connection).submit_sync("Ada")
        with Session(autocommit) as session, refused:
            greet.options(connection=session).submit_sync("Ada")
        engine.dispose()

    await asyncio.to_thread(plain_code)
    assert [job.payload for job in await app.jobs.list()] == [{"name": "in a transaction"}]


async def test_an_engine_or_a_pool_is_refused_with_what_to_pass_instead(greet, database_url):
    refused = pytest.raises(ConfigError, match="hands out connections and is none itself: pass the")
    async with asyncpg.create_pool(database_url, min_size=1) as pool:
        with refused:
            await greet.options(connection=pool).submit("Ada")
    engine = create_async_engine(sqlalchemy_url(database_url, "asyncpg"))
    for given in (engine, async_sessionmaker(engine)):
        with refused:
            await greet.options(connection=given).submit("Ada")
    plain = sqlalchemy.create_engine(sqlalchemy_url(database_url, "psycopg"))
    for given in (plain, sessionmaker(plain)):
        with refused:
            greet.options(connection=given).submit_sync("Ada")
    await engine.dispose()
    plain.dispose()


async def test_a_key_that_an_open_transaction_uses_makes_the_second_submit_wait_for_its_end(
    app, greet, database_url
):
    async def submit_through_own_connection(end: str):
        connection = await asyncpg.connect(database_url)
        try:
            await connection.execute("begin")
            mine = await greet.options(key=end, connection=connection).submit("Ada")
            other = await asyncpg.connect(database_url)
            try:

                async def submit() -> Any:
                    async with other.transaction():
                        return await greet.options(key=end, connection=other).submit("Ada")

                waiting = asyncio.create_task(submit())
                await wait_until_blocked(connection, other)
                await connection.execute(end)
                return mine, await waiting
            finally:
                await other.close()
        finally:
            await connection.close()

    mine, theirs = await submit_through_own_connection("commit")
    assert (theirs.id, theirs.existed) == (mine.id, True)
    mine, theirs = await submit_through_own_connection("rollback")
    assert theirs.id != mine.id
    assert theirs.existed is False
    assert len(await app.jobs.list()) == 2


async def wait_until_blocked(watcher: Any, blocked: Any) -> None:
    """Until PostgreSQL itself says that the other waits for a lock."""
    pid = blocked.get_server_pid()
    blocked_by = "select cardinality(pg_blocking_pids($1))"
    while await watcher.fetchval(blocked_by, pid) == 0:
        await asyncio.sleep(0)
