"""Create and upgrade the schema: the numbered files in schema/, in two phases, and functions/.

A release first runs its `pre` files, which only add: nodes of the release before keep working on
the new schema. Its `post` files remove what only the old release used, and are run when no old
node is left. Each applied file is recorded with the oldest code that works with it, so that a
node can tell whether a schema suits it, in both directions.

SQL functions aren't part of these files: each is written once, in functions/, and all are applied
again whenever their text has changed. New functions are created before the files, which may use them;
the others are replaced after the files, whose columns they may use. Triggers are written in the files,
beside their tables, and come with the functions: from the moment one exists every node's statements run
its function, which may use the columns of any file. And functions that files drop, because others with
more parameters take their place, are dropped when those are there.

Each file is recorded with a checksum. A file that was changed or renamed after it was applied is refused
by name, and nothing is applied. Objects that the schema has lost, as after a restore, are repaired
(`schema_objects`).

All of it runs under an advisory lock. A process that dies leaves nothing half done: each file is one
transaction with its own record.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from importlib import resources
from typing import Any

import asyncpg
import msgspec

from rota.errors import ConfigError, SchemaMismatch, StoreUnavailable
from rota.lib.ids import unit
from rota.store.changes import Change, record_on
from rota.store.schema_objects import (
    SchemaObject,
    check_mendable,
    concerns_row_security,
    described,
    find_missing,
    forget_dropped,
    mend_definitions,
    record_objects,
)
from rota.store.sql import checksum_of_functions, function_statements, load_queries, render

DEFAULT_SHARDS = 128

# The name under which the table rota.migration records the functions.
FUNCTIONS = "functions"

_FOLDER = resources.files("rota.store") / "schema"
_FILE = re.compile(r"(\d{4})_\w+\.(pre|post)\.sql")
_TRIGGER = re.compile(
    r"^(create|drop) trigger (?:if exists )?(\w+)[^;]*? on rota\.(\w+)[^;]*;?", re.MULTILINE
)
_COMMENT = re.compile(r"^--.*$", re.MULTILINE)
_DROPPED_FUNCTION = re.compile(r"^drop function if exists rota\.\w+\([^;]*;?", re.MULTILINE)
_FUNCTION_NAME = re.compile(r"create or replace function \w+\.(\w+)\(")
_LOCK = 7_264_911
_LOCK_MS = 200  # well below deadlock_timeout: it is we who give way
_PATIENCE = 60.0
_PERMANENT = ("22", "23", "2B", "42", "P0")  # classes of SQLSTATE that a retry doesn't change


class Migration(msgspec.Struct, frozen=True, order=True):
    version: int
    phase: str
    name: str


def known_migrations() -> list[Migration]:
    found = [(_FILE.fullmatch(entry.name), entry.name) for entry in _FOLDER.iterdir()]
    return sorted(
        Migration(int(match[1]), match[2], name) for match, name in found if match is not None
    )


# The last schema version this code knows, and so the one it needs.
CODE_VERSION = max(migration.version for migration in known_migrations())


class Applied(msgspec.Struct, frozen=True):
    """A file as `rota.migration` records it."""

    version: int
    phase: str
    oldest_code: int  # that works with it
    checksum: str


class Migrated(list[str]):
    """The names of the files that were applied, with what was repaired and what is left to do."""

    def __init__(self) -> None:
        super().__init__()
        self.mended: list[str] = []
        self.advice: str | None = None


def _source(migration: Migration) -> str:
    return (_FOLDER / migration.name).read_text("utf-8")


def checksum_of(migration: Migration) -> str:
    return hashlib.sha256(_source(migration).encode()).hexdigest()


async def applied_migrations(connection: Any, schema: str) -> dict[str, Applied]:
    """Return the files that were applied, by name, and the functions under FUNCTIONS."""
    try:
        rows = await connection.fetch(
            f"select name, version, phase, oldest_code, checksum from {schema}.migration"  # noqa: S608
        )
    except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
        return {}
    return {name: Applied(*values) for name, *values in rows}


def check_history(schema: str, applied: dict[str, Applied]) -> None:
    """Refuse a schema to which other files were applied than this release has, naming them."""
    known = {migration.name: migration for migration in known_migrations()}
    changed = [
        name for name, migration in known.items()
        if name in applied and applied[name].checksum != checksum_of(migration)
    ]  # fmt: skip
    if changed:
        raise SchemaMismatch(
            f"migration {', '.join(changed)}: the file differs from the one that was applied to the "
            f"schema {schema!r}. A migration is never changed once it was used. Install the release of "
            "Rota that applied it, or put the file back as it was and its change into a new one"
        )
    unknown = sorted(
        name for name, each in applied.items()
        if name != FUNCTIONS and each.version <= CODE_VERSION and name not in known
    )  # fmt: skip
    if unknown:
        raise SchemaMismatch(
            f"migration {', '.join(unknown)} was applied to the schema {schema!r}, and this release of "
            "Rota has no such file: it was renamed or removed, or belongs to another branch. Install "
            "the release that applied it, or correct the name in the table "
            f"{schema}.migration if the file was only renamed"
        )


async def pending_names(connection: Any, schema: str, *, include_post: bool) -> list[str]:
    """Return what `migrate` would apply: migration files, and the functions if they differ."""
    applied = await applied_migrations(connection, schema)
    names = [migration.name for migration in _pending_files(applied, include_post)]
    return [*names, FUNCTIONS] if _functions_are_pending(applied) else names


def _pending_files(applied: dict[str, Applied], include_post: bool) -> list[Migration]:
    return [
        migration
        for migration in known_migrations()
        if migration.name not in applied and (include_post or migration.phase == "pre")
    ]


def _functions_are_pending(applied: dict[str, Applied]) -> bool:
    """Return whether the functions differ from this code's, and aren't those of a newer release."""
    recorded = applied.get(FUNCTIONS)
    if recorded is None:
        return True
    return recorded.version <= CODE_VERSION and recorded.checksum != checksum_of_functions()


async def migrate(
    connection: Any, schema: str, *, include_post: bool = False, shards: int = DEFAULT_SHARDS,
    namespace: str = "default",
) -> Migrated:  # fmt: skip
    """Bring the schema up to this code, and return the names of the files that were applied.

    A new schema is made in one transaction. One that is in use is changed file by file: nodes go on
    working meanwhile, and each file waits for its locks only for a moment, because all others wait
    behind it. Then it is rolled back and tried again. If the process dies, whole files are applied.

    The number of shards is decided when the schema is made, and kept.

    Safe to call from any number of processes at once: the lock is held by a transaction, so that it
    also works behind a transaction pooler and is gone with its holder.
    """
    done = Migrated()
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            step = await _step(connection, schema, include_post, shards, namespace)
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
            if time.monotonic() > end:
                raise StoreUnavailable(
                    f"the tables of schema {schema!r} were locked by others for {_PATIENCE:.0f} s: end "
                    "long transactions that use them, and run `rota migrate` again"
                ) from None
            await asyncio.sleep(0.1 + 0.4 * unit())
            continue
        done += step.applied
        done.mended += step.mended
        if step.fresh or not step.applied:
            break
    if done:
        # Without statistics the first plans are guesses.
        await connection.execute(
            f"analyze {schema}.future, {schema}.present, {schema}.setting, {schema}.task"
        )
    done.advice = await _advice(connection, schema)
    return done


async def _advice(connection: Any, schema: str) -> str | None:
    """Return the SQL that a role with more rights has to run, so that there is row security."""
    if await connection.fetchval(load_queries(schema)["row_security_enabled"]):
        return None
    role, exists = await connection.fetchrow(
        "select quote_ident(current_user), exists (select from pg_roles where rolname = 'rota_tenant')"
    )
    create = "" if exists else "create role rota_tenant nologin; "
    return (
        "there is no row security between namespaces, because the role rota_tenant could not be "
        f"{'granted to' if exists else 'created by'} {role}. Let a superuser run `{create}grant "
        f"rota_tenant to {role};`, and run `rota migrate` again"
    )


class _Step(msgspec.Struct):
    """The files that were applied and mended, and whether the schema was new."""

    applied: list[str]
    mended: list[str]
    fresh: bool


async def _step(
    connection: Any, schema: str, include_post: bool, shards: int, namespace: str
) -> _Step:
    """Apply all files to a new schema; to others the next one, or the functions when no file is left."""
    async with connection.transaction():
        await connection.execute("select pg_advisory_xact_lock($1)", _LOCK)
        # create schema, create table if not exists: these are not safe against racing themselves.
        await connection.execute(
            f"create schema if not exists {schema};"
            f"create table if not exists {schema}.migration (name text primary key,"
            " version int not null, phase text not null, oldest_code int not null,"
            " checksum text not null, applied_at timestamptz not null default now())"
        )
        applied = await applied_migrations(connection, schema)
        fresh = not applied
        check_history(schema, applied)
        pending = _pending_files(applied, include_post)
        mended: list[str] = []
        lost: list[SchemaObject] = []
        if not fresh:
            await connection.execute(f"set local lock_timeout = {_LOCK_MS}")
            pending = pending[:1]
            mended, lost = await _mend(connection, schema)
        if pending:
            await _add_functions(connection, schema)
        for migration in pending:
            await _apply(connection, schema, migration)
            applied[migration.name] = _record_of(migration)
        if pending and not fresh:
            await forget_dropped(connection, schema, lost)
        done = [migration.name for migration in pending]
        if fresh or not pending:
            await _add_triggers(connection, schema, applied)
            if _functions_are_pending(applied):
                await _replace_functions(connection, schema, applied)
                done.append(FUNCTIONS)
            await connection.execute(f"select {schema}.enable_row_security()")
            if shards != DEFAULT_SHARDS:
                await _settle_shards(connection, schema, shards, fresh=fresh)
            await record_objects(connection, schema)
        if (done or mended) and not fresh:
            change = Change("migrate", f"schema {schema}", namespace=namespace,
                            after={"applied": done, "mended": mended})  # fmt: skip
            await record_on(connection, load_queries(schema)["record_change"], change)
        return _Step(done, mended, fresh)


async def _apply(connection: Any, schema: str, migration: Migration) -> None:
    source = _TRIGGER.sub(lambda each: "" if each[1] == "create" else each[0], _source(migration))
    source = _DROPPED_FUNCTION.sub("", source)
    try:
        if _COMMENT.sub("", source).strip():  # else it drops functions, and no more
            await connection.execute(render(source, schema))
    except asyncpg.PostgresError as error:
        if not (error.sqlstate or "").startswith(_PERMANENT):
            raise
        raise SchemaMismatch(
            f"migration {migration.name} could not be applied to the schema {schema!r}, and nothing of "
            f"it was: {error}"
        ) from error
    await _record_applied(connection, schema, migration.name, _record_of(migration))


def _record_of(migration: Migration) -> Applied:
    oldest = migration.version if migration.phase == "post" else 1
    return Applied(migration.version, migration.phase, oldest, checksum_of(migration))


async def _record_applied(connection: Any, schema: str, name: str, applied: Applied) -> None:
    await connection.execute(
        f"insert into {schema}.migration (name, version, phase, oldest_code, checksum)"  # noqa: S608
        " values ($1, $2, $3, $4, $5) on conflict (name) do update"
        " set version = excluded.version, checksum = excluded.checksum, applied_at = now()",
        name, *msgspec.structs.astuple(applied),
    )  # fmt: skip


async def _mend(connection: Any, schema: str) -> tuple[list[str], list[SchemaObject]]:
    """Repair missing objects; return the names of those repaired, and the objects still missing."""
    missing = await find_missing(connection, schema)
    if not missing:
        return [], []
    check_mendable(schema, missing)
    await _add_functions(connection, schema, mending=True)
    await mend_definitions(connection, missing)
    if concerns_row_security(missing):
        await connection.execute(f"select {schema}.enable_row_security()")
    left = await find_missing(connection, schema)
    return [str(each) for each in missing if each not in left], left


async def _add_functions(connection: Any, schema: str, *, mending: bool = False) -> None:
    """Create the functions that don't exist yet. Those that exist may be in use.

    One that takes the place of another of its name, with other parameters, waits for the others: calls
    that fit both would be refused as ambiguous. `mending`: of two with the same name one may be missing.
    """
    # Their bodies may name tables that the files are about to create.
    await connection.execute("set local check_function_bodies = off")
    rows = await connection.fetch(
        "select proname::text from pg_proc where pronamespace = $1::regnamespace", schema
    )
    exist = {row[0] for row in rows}
    for statement in function_statements(schema):
        name = _FUNCTION_NAME.match(statement)
        if name is not None and name[1] in exist and not mending:
            continue
        try:
            async with connection.transaction():
                await connection.execute(statement.replace("create or replace", "create", 1))
        except asyncpg.DuplicateFunctionError:
            pass


async def _add_triggers(connection: Any, schema: str, applied: dict[str, Applied]) -> None:
    """Create the triggers of the files that were applied, but for those that exist."""
    wanted: dict[tuple[str, str], str] = {}
    for migration in known_migrations():
        if migration.name in applied:
            for each in _TRIGGER.finditer(_source(migration)):
                if each[1] == "create":
                    wanted[each[2], each[3]] = each[0]
                else:
                    wanted.pop((each[2], each[3]), None)
    exist = await connection.fetch(
        "select t.tgname, c.relname from pg_trigger as t join pg_class as c on c.oid = t.tgrelid"
        " where c.relnamespace = $1::regnamespace and not t.tgisinternal",
        schema,
    )
    for trigger in sorted(wanted.keys() - {tuple(row) for row in exist}):
        await connection.execute(render(wanted[trigger], schema))


async def _replace_functions(connection: Any, schema: str, applied: dict[str, Applied]) -> None:
    for migration in known_migrations():
        if migration.name in applied:
            for dropped in _DROPPED_FUNCTION.findall(_source(migration)):
                await connection.execute(render(dropped, schema))
    for statement in function_statements(schema):
        await connection.execute(statement)
    record = Applied(CODE_VERSION, "functions", 1, checksum_of_functions())
    await _record_applied(connection, schema, FUNCTIONS, record)


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


class SchemaFit(msgspec.Struct, frozen=True, kw_only=True):
    """The fit of the schema of a database to this release.

    `version`: the newest migration that was applied; 0: there is no schema. `pending`: what
    `rota migrate` would apply. `post`: what `rota migrate --post` would, once no node of the
    release before runs.
    """

    fits: bool
    version: int
    needed: int
    pending: list[str]
    post: list[str]
    verdict: str


async def compare_schema(connection: Any, schema: str) -> SchemaFit:
    applied = await applied_migrations(connection, schema)
    pending = await pending_names(connection, schema, include_post=False)
    post = [each.name for each in _pending_files(applied, True) if each.name not in pending]
    verdict = "fits"
    if pending:
        verdict = f"run `rota migrate` to apply: {', '.join(pending)}"
    try:
        await check_schema(connection, schema)
    except SchemaMismatch as error:
        verdict = str(error)
    return SchemaFit(
        fits=verdict == "fits", needed=CODE_VERSION, pending=pending, post=post, verdict=verdict,
        version=max((each.version for each in applied.values()), default=0),
    )  # fmt: skip


async def check_schema(connection: Any, schema: str) -> None:
    """Refuse a schema that this code can't work with; the error names the command to run."""
    applied = await applied_migrations(connection, schema)
    if not applied:
        raise SchemaMismatch(
            f"the database has no Rota schema {schema!r}. Run `rota migrate` once, "
            "with the same ROTA_DATABASE_URL"
        )
    check_history(schema, applied)
    needed = [m.name for m in known_migrations() if m.phase == "pre"] + [FUNCTIONS]
    missing = [name for name in needed if name not in applied]
    if missing:
        raise SchemaMismatch(
            f"the schema {schema!r} is older than this code: {', '.join(missing)} not applied. "
            "Run `rota migrate`; nodes of the release before can keep running meanwhile"
        )
    if (oldest := max(each.oldest_code for each in applied.values())) > CODE_VERSION:
        raise SchemaMismatch(
            f"the schema {schema!r} needs code of schema version {oldest} or newer, "
            f"and this is {CODE_VERSION}. Upgrade the rota package on this node"
        )
    if lost := await find_missing(connection, schema):
        raise SchemaMismatch(
            f"the schema {schema!r} has lost {described(lost)}: was it restored on another server, or "
            "without its roles? Run `rota migrate`, which mends it and says what it can't"
        )
