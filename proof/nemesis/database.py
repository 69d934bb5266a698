"""What is done to the database itself: errors, locks, cancelled statements, lost days, a clock set back.

Protocol. Triggers on every table of Rota ask, before each statement that writes, whether it is to fail,
and by which SQLSTATE: the server itself raises it, so that a transaction is aborted as it would be. What
they answer is in `nemesis.trouble`; how often each was raised is counted by sequences, which no rollback
undoes. A deferred trigger on the application's own table does the same at the commit.

An error after the effect is the proxy's business: see its `error_reply`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator
from typing import Any

import asyncpg

from proof import owners
from proof.nemesis.server import Server
from proof.simulation.trouble import SQLSTATES, TABLES

LOST = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError)
_LOCKED = ("schedule", "shard", "node", "present", "batch", "gate", "occurrence")

_SCHEMA = """
create schema nemesis;
create table nemesis.trouble (id int not null, sqlstates text[] not null, chance float8 not null);
create function nemesis.fail() returns trigger language plpgsql
    security definer set search_path = pg_catalog as $$
declare
    chosen text;
begin
    select t.sqlstates[1 + floor(random() * cardinality(t.sqlstates))] into chosen
    from nemesis.trouble as t where random() < t.chance limit 1;
    if chosen is not null then
        perform nextval('nemesis.raised_' || lower(chosen));
        raise exception 'the nemesis wants it so' using errcode = chosen;
    end if;
    return null;
end $$;
"""
_SEQUENCE = "create sequence nemesis.raised_{sqlstate}"
_TRIGGER = """
create trigger nemesis before insert or update or delete on rota.{table}
    for each statement execute function nemesis.fail()"""
_AT_COMMIT = """
create constraint trigger nemesis_at_commit after insert on rota.app_effect
    deferrable initially deferred for each row execute function nemesis.fail()"""
_FAR_DAYS = """
select c.relname as name from pg_inherits as i join pg_class as c on c.oid = i.inhrelid
where i.inhparent in ('rota.past'::regclass, 'rota.occurrence'::regclass)
  and c.relname ~ '_[0-9]{8}$'
  and to_date(right(c.relname, 8), 'YYYYMMDD') > (rota.now() at time zone 'UTC')::date + 1
order by random() limit 2"""
_CANCEL = """
select count(pg_cancel_backend(pid)) from pg_stat_activity
where backend_type = 'client backend' and pid <> pg_backend_pid() and state = 'active'
  and random() < $1"""
_CANCEL_EVERY = 0.05
_PATIENCE = 50


async def set_defaults(server: Server, seed: int) -> dict[str, str]:
    """As this seed's owner has chosen, for the database or for the role."""
    chance = random.Random(f"{seed} dba")
    chosen = owners.choose(chance, owners.DEFAULTS | owners.LIMITS | owners.IDLE_LIMITS)
    whose = chance.choice(("database", "role"))
    connection = await server.connect()
    for name, value in chosen.items():
        await connection.execute(f"alter {whose} postgres set {name} = {value}")
    await connection.close()
    return chosen


class Database:
    """One of a run. Each fault is a context that yields what is to be written down of it."""

    def __init__(self, server: Server, seed: int) -> None:
        self._server = server
        self._chance = random.Random(f"{seed} database")
        self._ids = itertools.count(1)

    async def prepare(self) -> None:
        """When Rota's tables and the application's are there."""
        connection = await self._server.connect()
        await connection.execute(_SCHEMA)
        for sqlstate in SQLSTATES:
            await connection.execute(_SEQUENCE.format(sqlstate=sqlstate.lower()))
        for table in (*TABLES, "app_effect", "app_guarded"):
            await connection.execute(_TRIGGER.format(table=table))
        await connection.execute(_AT_COMMIT)
        await connection.close()

    async def raised(self) -> dict[str, int]:
        """How often the triggers raised each SQLSTATE."""
        connection = await self._server.connect()
        counts = {}
        for sqlstate in SQLSTATES:
            sequence = f"nemesis.raised_{sqlstate.lower()}"
            counts[sqlstate] = await connection.fetchval(
                f"select case when is_called then last_value else 0 end from {sequence}"
            )
        await connection.close()
        return counts

    # -- faults

    @contextlib.asynccontextmanager
    async def failing(self, sqlstates: tuple[str, ...], chance: float) -> AsyncIterator[None]:
        """Statements that write fail before their effect."""
        id = next(self._ids)
        insert = "insert into nemesis.trouble (id, sqlstates, chance) values ($1, $2, $3)"
        await self._surely(insert, id, list(sqlstates), chance)
        try:
            yield
        finally:
            await self._surely("delete from nemesis.trouble where id = $1", id)

    async def _surely(self, statement: str, *arguments: Any) -> None:
        """Through whatever else befalls the server; it may be done twice."""
        for attempt in range(_PATIENCE, -1, -1):
            connection = await self._server.connect()
            try:
                await connection.execute(statement, *arguments)
                return
            except LOST:
                if not attempt:
                    raise
                await asyncio.sleep(0.1)
            finally:
                connection.terminate()

    async def cancel_statements(self, share: float, seconds: float) -> int:
        """As `pg_cancel_backend` does, of whatever is under way, over and over. How many it hit."""
        end, hit = asyncio.get_running_loop().time() + seconds, 0
        async with self._connection() as connection:
            while asyncio.get_running_loop().time() < end:
                hit += await connection.fetchval(_CANCEL, share)
                await asyncio.sleep(_CANCEL_EVERY)
        return hit

    @contextlib.asynccontextmanager
    async def rows_locked(self) -> AsyncIterator[str]:
        """By somebody who began a transaction at a console, and went away."""
        table = self._chance.choice(_LOCKED)
        async with self._connection() as connection:
            # Never ended: its connection is closed in the end, if the server hasn't done so before.
            await connection.transaction().start()
            await connection.execute("set local lock_timeout = 1000")
            rows = await connection.fetch(
                f"select 1 from rota.{table} order by random() limit 20 for update"
            )
            yield f"{len(rows)} rows of {table}"

    async def drop_days(self) -> int:
        """Partitions of days to come are gone: they have to be made while others work and read.

        Whoever drops them waits for nobody: behind somebody who waits for a table, all would wait.
        """
        dropped = 0
        async with self._connection() as connection:
            await connection.execute("set lock_timeout = 50")
            for row in await connection.fetch(_FAR_DAYS):
                with contextlib.suppress(
                    asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError
                ):
                    await connection.execute(f"drop table if exists rota.{row['name']}")
                    dropped += 1
        return dropped

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator[asyncpg.Connection]:
        connection = await asyncpg.connect(
            self._server.url, timeout=5, server_settings=owners.OWN_SETTINGS
        )
        try:
            yield connection
        finally:
            connection.terminate()
