"""A PostgreSQL server for simulations, and the migrated database that each seed gets a copy of.

The copy is the same to the last byte, whatever ran before it, so that no seed depends on another. In the
template the clock is the simulation's (a file, written by the engine before each statement), the days of
the past begin at the simulation's epoch, and what would be sent by pg_notify is a notice, which comes
back with the statement's own answer instead of at some real moment.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from proof.simulation.engine import EPOCH
from rota.store.embedded import EmbeddedPostgres, open_embedded
from rota.store.migrate import migrate

SCHEMA = "sim"
SHARDS = 12  # fewer than usual: a third of the statements go through all of them
_TEMPLATE = "sim_template"

# Nothing here has to survive a power cut; and nothing may happen by itself at some real moment.
_SERVER = {
    "fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "autovacuum": "off",
}  # fmt: skip

_CLOCK = """
create or replace function {schema}.now() returns timestamptz language sql stable
    as $$ select pg_read_file('{file}')::timestamptz $$;
"""

# Ids that the database makes are the same in every run of a seed: a claim goes by them.
_IDS = f"""
create sequence {SCHEMA}.sim_id;
create or replace function {SCHEMA}.new_id() returns uuid language sql volatile as $$
    select encode(set_bit(set_bit(overlay(decode(md5(nextval('{SCHEMA}.sim_id')::text), 'hex')
        placing substring(int8send((extract(epoch from {SCHEMA}.now()) * 1000)::bigint) from 3)
        from 1 for 6), 52, 1), 53, 1), 'hex')::uuid
$$;
"""

_HINTS = f"""
create function {SCHEMA}.sim_notify(channel text, payload text) returns void
    language plpgsql volatile as $$
begin
    raise notice 'hint % %', channel, payload;
end $$;
"""

_TABLES = f"""
delete from {SCHEMA}.shard where shard >= {SHARDS};
update {SCHEMA}.setting set value = {SHARDS} where name = 'shards';
alter table {SCHEMA}.installation alter id set default '00000000-0000-7000-8000-000000000001';
create table {SCHEMA}.app_effect (job uuid not null, token bigint not null);
create table {SCHEMA}.app_guarded (job uuid primary key, token bigint not null, writes int not null);
"""

_FUNCTIONS = f"""
select pg_get_functiondef(p.oid) as text from pg_proc as p
where p.pronamespace = '{SCHEMA}'::regnamespace
  and (p.prosrc like '%pg_notify(%' or p.prosrc like '%clock_timestamp%'
       or p.prosrc like '%lock_timeout%')
  and p.proname not in ('sim_notify', 'new_id') order by p.proname
"""

# By virtual time they are the gateway's (see `trouble`): by real time a seed wouldn't repeat itself.
_IMPATIENT = f"""
select p.oid::regprocedure::text as name from pg_proc as p
where p.pronamespace = '{SCHEMA}'::regnamespace and p.proconfig::text like '%lock_timeout%'
"""

_DAYS = f"""
select c.relname as name from pg_inherits as i join pg_class as c on c.oid = i.inhrelid
where i.inhparent in ('{SCHEMA}.past'::regclass, '{SCHEMA}.occurrence'::regclass)
  and c.relname ~ '_[0-9]{{8}}$'
"""


def with_sim_notify(sql: str) -> str:
    """Where a statement would notify, a notice."""
    return sql.replace("pg_notify(", f"{SCHEMA}.sim_notify(")


class SimServer:
    """`with SimServer() as server: url = server.make_database("seed_7")`"""

    def __init__(self) -> None:
        # Short: a unix socket's path has little room.
        self._data_dir = Path(tempfile.mkdtemp(prefix="rota-sim-"))
        self._data_dir.chmod(0o711)  # root's server runs as another user, who must be able to pass
        self._embedded: EmbeddedPostgres | None = None
        self.clock = self._data_dir / "clock"  # the database's time, as text
        self.clock.write_text(EPOCH.isoformat(" ", "microseconds"))
        self.clock.chmod(0o644)

    def __enter__(self) -> Self:
        self._embedded = open_embedded(self._data_dir)
        self._url = self._embedded.url
        asyncio.run(self._prepare())
        return self

    def __exit__(self, *_: object) -> None:
        assert self._embedded is not None
        self._embedded.close()
        shutil.rmtree(self._data_dir, ignore_errors=True)

    async def _prepare(self) -> None:
        connection = await asyncpg.connect(self._url)
        for name, value in _SERVER.items():
            await connection.execute(f"alter system set {name} = {value}")
        await connection.execute("select pg_reload_conf()")
        await connection.execute(f"create database {_TEMPLATE}")
        await connection.close()
        template = await asyncpg.connect(self.url_of(_TEMPLATE))
        await migrate(template, SCHEMA, include_post=True)
        await _simulate(template, self.clock)
        await template.close()

    def url_of(self, database: str) -> str:
        parts = urlsplit(self._url)
        return urlunsplit(parts._replace(path=f"/{database}"))

    def make_database(self, name: str) -> str:
        """A fresh copy of the template; its URL."""
        asyncio.run(
            self._execute(
                f"drop database if exists {name} with (force)",
                f"create database {name} template {_TEMPLATE} strategy file_copy",
            )
        )
        return self.url_of(name)

    def drop_database(self, name: str) -> None:
        asyncio.run(self._execute(f"drop database if exists {name} with (force)"))

    async def _execute(self, *statements: str) -> None:
        connection = await asyncpg.connect(self._url)
        for statement in statements:
            await connection.execute(statement)
        await connection.close()


async def _simulate(connection: Any, clock: Path) -> None:
    await connection.execute(_HINTS)
    for row in await connection.fetch(_FUNCTIONS):
        text = with_sim_notify(row["text"]).replace(
            "clock_timestamp() - statement_timestamp() +", ""
        )
        if "clock_timestamp" in text:
            raise ValueError(f"a function reads the real clock: {text}")
        if "lock_timeout" in text.partition("AS $function$")[2]:
            raise ValueError(f"a function waits for locks by the real clock: {text}")
        await connection.execute(text)
    for row in await connection.fetch(_IMPATIENT):
        await connection.execute(f"alter function {row['name']} reset lock_timeout")
    await connection.execute(_CLOCK.format(schema=SCHEMA, file=clock))
    await connection.execute(_IDS)
    await connection.execute(_TABLES)
    for row in await connection.fetch(_DAYS):
        await connection.execute(f"drop table {SCHEMA}.{row['name']}")
    for kind in ("make_day", "make_occurrence_day"):
        await connection.execute(
            f"select {SCHEMA}.{kind}(({SCHEMA}.now() at time zone 'UTC')::date + ahead)"
            " from generate_series(0, 7) as ahead"
        )
