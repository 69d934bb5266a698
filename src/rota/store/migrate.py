"""Schema versions: numbered files in migrations/, in two phases, under an advisory lock; and functions/.

A release first runs its `pre` files, which only add: nodes of the release before keep working on
the new schema. Its `post` files take away what only the old release used, and are run when no old
node is left. Each applied file is recorded with the oldest code that can live with it, so that a
node knows whether the schema it meets suits it, in both directions.

SQL functions aren't part of these files: each is written once, in functions/, and all are applied
again whenever their text has changed. Functions that are new come before the files, which may use them;
the others are replaced after the files, whose columns they may use.

Dying in the middle leaves nothing half done: each file is one transaction with its own record.
"""

from __future__ import annotations

import asyncio
import re
import time
from importlib import resources
from typing import Any, Literal

import asyncpg
import msgspec

from rota.entropy import unit
from rota.errors import ConfigError, SchemaMismatch, StoreUnavailable
from rota.store.functions import FUNCTIONS, checksum_of_functions, function_statements
from rota.store.queries import in_schema

Phase = Literal["pre", "post"]

DEFAULT_SHARDS = 128

_FILE = re.compile(r"(\d{4})_\w+\.(pre|post)\.sql")
_LOCK = 7_264_911
_LOCK_MS = 200  # well below deadlock_timeout: it is we who give way
_PATIENCE = 60.0


class Migration(msgspec.Struct, frozen=True, order=True):
    version: int
    phase: str
    name: str


def known_migrations() -> list[Migration]:
    folder = resources.files("rota.store") / "migrations"
    found = [(_FILE.fullmatch(entry.name), entry.name) for entry in folder.iterdir()]
    return sorted(
        Migration(int(match[1]), match[2], name) for match, name in found if match is not None
    )


# The last schema version this code knows, and so the one it needs.
CODE_VERSION = max(migration.version for migration in known_migrations())


def _text(migration: Migration, schema: str) -> str:
    folder = resources.files("rota.store") / "migrations"
    return in_schema((folder / migration.name).read_text("utf-8"), schema)


async def applied_migrations(connection: Any, schema: str) -> dict[str, int]:
    """The files that were applied, each with the oldest code version that can live with it."""
    try:
        rows = await connection.fetch(f"select name, oldest_code from {schema}.migration")  # noqa: S608
    except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
        return {}
    return {row["name"]: row["oldest_code"] for row in rows}


async def pending_migrations(
    connection: Any, schema: str, *, include_post: bool
) -> list[Migration]:
    applied = await applied_migrations(connection, schema)
    return [
        migration
        for migration in known_migrations()
        if migration.name not in applied and (include_post or migration.phase == "pre")
    ]


async def migrate(
    connection: Any, schema: str, *, include_post: bool = False, shards: int = DEFAULT_SHARDS
) -> list[str]:
    """Brings the schema up to this code. Gives back the names of the files it applied.

    A new schema is made in one transaction. One that is in use is changed file by file: nodes go on
    working meanwhile, and each file waits for its locks only for a moment, because everybody else
    waits behind it. It then lets go, and tries again. Dying in between leaves whole files.

    The number of shards is decided when the schema is made, and kept.

    Safe to call from any number of processes at once: the lock is held by a transaction, so that it
    also works behind a transaction pooler and is gone with its holder.
    """
    done: list[str] = []
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            applied, made = await _step(connection, schema, include_post, shards)
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
            if time.monotonic() > end:
                raise StoreUnavailable(
                    f"the tables of schema {schema!r} were locked by others for {_PATIENCE:.0f} s: end "
                    "long transactions that use them, and run `rota migrate` again"
                ) from None
            await asyncio.sleep(0.1 + 0.4 * unit())
            continue
        done += applied
        if made or not applied:
            break
    if done:
        # Without statistics the first plans are guesses.
        await connection.execute(
            f"analyze {schema}.future, {schema}.present, {schema}.setting, {schema}.task"
        )
    return done


async def _step(
    connection: Any, schema: str, include_post: bool, shards: int
) -> tuple[list[str], bool]:
    """Apply all files to a schema that is new, else the next one, or the functions when no file is left.

    Gives back what was applied, and whether the schema was new.
    """
    async with connection.transaction():
        await connection.execute("select pg_advisory_xact_lock($1)", _LOCK)
        # create schema, create table if not exists: these are not safe against racing themselves.
        await connection.execute(
            f"create schema if not exists {schema};"
            f"create table if not exists {schema}.migration (name text primary key,"
            " version int not null, phase text not null, oldest_code int not null,"
            " applied_at timestamptz not null default now());"
            f"alter table {schema}.migration add column if not exists checksum text"
        )
        fresh = not await applied_migrations(connection, schema)
        pending = await pending_migrations(connection, schema, include_post=include_post)
        if not fresh:
            await connection.execute(f"set local lock_timeout = {_LOCK_MS}")
            pending = pending[:1]
        if pending:
            await _add_functions(connection, schema)
        for migration in pending:
            await connection.execute(_text(migration, schema))
            oldest = migration.version if migration.phase == "post" else 1
            await connection.execute(
                f"insert into {schema}.migration (name, version, phase, oldest_code)"  # noqa: S608
                " values ($1, $2, $3, $4)",
                migration.name, migration.version, migration.phase, oldest,
            )  # fmt: skip
        done = [migration.name for migration in pending]
        if fresh or not pending:
            if await _functions_are_pending(connection, schema):
                await _replace_functions(connection, schema)
                done.append(FUNCTIONS)
            await connection.execute(f"select {schema}.raise_walls()")
            if shards != DEFAULT_SHARDS:
                await _settle_shards(connection, schema, shards, fresh=fresh)
        return done, fresh


async def _add_functions(connection: Any, schema: str) -> None:
    """Create the functions that don't exist yet. Those that exist may be in use."""
    # Their bodies may name tables that the files are about to create.
    await connection.execute("set local check_function_bodies = off")
    for statement in function_statements(schema):
        try:
            async with connection.transaction():
                await connection.execute(statement.replace("create or replace", "create", 1))
        except asyncpg.DuplicateFunctionError:
            pass


async def _functions_are_pending(connection: Any, schema: str) -> bool:
    """Whether the functions differ from this code's, and aren't those of a newer release."""
    query = f"select version, checksum from {schema}.migration where name = $1"  # noqa: S608
    row = await connection.fetchrow(query, FUNCTIONS)
    if row is None:
        return True
    newer: bool = row["version"] > CODE_VERSION
    return not newer and row["checksum"] != checksum_of_functions()


async def _replace_functions(connection: Any, schema: str) -> None:
    for statement in function_statements(schema):
        await connection.execute(statement)
    await connection.execute(
        f"insert into {schema}.migration (name, version, phase, oldest_code, checksum)"  # noqa: S608
        " values ($1, $2, 'functions', 1, $3) on conflict (name) do update"
        " set version = excluded.version, checksum = excluded.checksum, applied_at = now()",
        FUNCTIONS, CODE_VERSION, checksum_of_functions(),
    )  # fmt: skip


async def _settle_shards(connection: Any, schema: str, shards: int, *, fresh: bool) -> None:
    if fresh:
        await connection.execute(
            f"update {schema}.setting set value = {shards} where name = 'shards';"  # noqa: S608
            f"delete from {schema}.shard;"
            f"insert into {schema}.shard (shard) select * from generate_series(0, {shards} - 1)"
        )
        return
    query = f"select value from {schema}.setting where name = 'shards'"  # noqa: S608
    if (made := await connection.fetchval(query)) != shards:
        raise ConfigError(
            f"shards: the schema {schema!r} was made with {made}, which can't be changed to {shards}. "
            "Leave ROTA_SHARDS out, or make a new schema with it"
        )


async def check_schema(connection: Any, schema: str) -> None:
    """Refuses a schema that this code can't work with, saying what to run."""
    applied = await applied_migrations(connection, schema)
    if not applied:
        raise SchemaMismatch(
            f"the database has no Rota schema {schema!r}. Run `rota migrate` once, "
            "with the same ROTA_DATABASE_URL"
        )
    needed = [m.name for m in known_migrations() if m.phase == "pre"] + [FUNCTIONS]
    missing = [name for name in needed if name not in applied]
    if missing:
        raise SchemaMismatch(
            f"the schema {schema!r} is older than this code: {', '.join(missing)} not applied. "
            "Run `rota migrate`; nodes of the release before can keep running meanwhile"
        )
    if max(applied.values()) > CODE_VERSION:
        raise SchemaMismatch(
            f"the schema {schema!r} needs code of schema version {max(applied.values())} or newer, "
            f"and this is {CODE_VERSION}. Upgrade the rota package on this node"
        )
