"""rota/store/kept.py: connections that are kept at hand between two uses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from proof.waiting import eventually
from rota import Settings
from rota.errors import StoreUnavailable
from rota.store import kept as module
from rota.store.database import Database


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url, Settings(database_url=database_url, pool_size=2))
    await database.open()
    yield database
    await database.close()


async def backend(database: Database) -> int:
    async with database.connection() as connection:
        return connection.get_server_pid()


async def test_the_next_user_gets_the_connection_of_the_last(database: Database) -> None:
    first = await backend(database)

    assert await backend(database) == first
    assert database._pool is not None
    assert database._pool.get_idle_size() == 0  # for the pool it stays in use


async def test_who_waits_for_the_pool_gets_what_is_given_back(database: Database) -> None:
    async with database.connection() as one, database.connection() as two:
        waiting = asyncio.create_task(backend(database))
        await asyncio.sleep(0)
        in_use = {one.get_server_pid(), two.get_server_pid()}
    async with asyncio.timeout(10):
        assert await waiting in in_use


async def test_many_users_share_few_connections(database: Database) -> None:
    async with asyncio.timeout(20):
        pids = await asyncio.gather(*(backend(database) for _ in range(200)))

    assert len(set(pids)) <= 2


async def test_a_connection_whose_user_failed_goes_back_to_the_pool(database: Database) -> None:
    with pytest.raises(asyncpg.DivisionByZeroError):
        async with database.connection() as connection:
            await connection.fetch("select 1 / 0")

    assert database._pool is not None
    assert database._pool.get_idle_size() == 1


async def test_a_cancelled_statement_is_over_before_its_connection_is_used_again(
    database: Database,
) -> None:
    async def wait() -> None:
        async with database.connection() as connection:
            await connection.fetch("select pg_sleep(60)")

    await backend(database)
    waiting = asyncio.create_task(wait())
    while not waiting.done():
        await asyncio.sleep(0.01)
        async with database.connection() as connection:
            if await connection.fetchval(
                "select count(*) from pg_stat_activity where query = 'select pg_sleep(60)'"
                " and state = 'active'"
            ):
                waiting.cancel()
                break
    with pytest.raises(asyncio.CancelledError):
        await waiting

    async with asyncio.timeout(20), database.connection() as one, database.connection() as other:
        assert await one.fetchval("select 1") == await other.fetchval("select 1") == 1


async def test_a_connection_that_was_ended_meanwhile_is_not_given_to_anybody(
    database: Database, database_url: str
) -> None:
    first = await backend(database)
    killer = await asyncpg.connect(database_url)
    await killer.execute(f"select pg_terminate_backend({first}, 10000)")
    await killer.close()
    # Our end learns of it in its own time: until then a user may get it, and an error.
    for _ in range(1_000):
        try:
            second = await backend(database)
            async with database.connection() as connection:
                await connection.fetchval("select 1")
            break
        except StoreUnavailable:
            await asyncio.sleep(0.01)

    assert second != first


@pytest.mark.parametrize("when", ["while nobody uses it", "while it is in use"])
async def test_what_our_end_knows_to_be_gone_is_nobodys_error(
    database: Database, database_url: str, when: str
) -> None:
    async def end(connection: asyncpg.Connection) -> None:
        killer = await asyncpg.connect(database_url)
        await killer.execute(f"select pg_terminate_backend({first}, 10000)")
        await killer.close()
        await eventually(lambda: connection._con is None)  # asyncpg has taken it from its user

    async with database.connection() as connection:
        first = await connection.fetchval("select pg_backend_pid()")
        if when == "while it is in use":
            await end(connection)
    if when == "while nobody uses it":
        await end(connection)

    assert await backend(database) != first


async def test_after_a_farewell_none_of_the_older_connections_is_kept(database: Database) -> None:
    async with database.connection() as in_use:
        older = in_use.get_server_pid()
        with pytest.raises(StoreUnavailable):
            async with database.connection() as connection:
                await connection.execute("do $$ begin raise sqlstate '25006'; end $$")

    assert await backend(database) != older


async def test_what_nobody_takes_goes_back_to_the_pool(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_IDLE_SECONDS", 0.0)
    await backend(database)

    assert database._pool is not None
    async with asyncio.timeout(10):
        while database._pool.get_idle_size() == 0:
            await asyncio.sleep(0)


async def test_a_database_closes_while_connections_are_kept(database_url: str) -> None:
    database = Database(database_url, Settings(database_url=database_url, pool_size=2))
    await database.open()
    await backend(database)

    async with asyncio.timeout(4):  # less than the patience with connections that are in use
        await database.close()
