"""Submitting inside the caller's own transaction, through whatever driver they use.

One SQL function does the work, so a driver needs no more than to run one statement. Drivers are
recognised by where their class comes from: none of them has to be installed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from rota.errors import ConfigError, SchemaMismatch, SubmitError
from rota.store.database import REFUSED
from rota.store.rows import NewJob, Submitted

# What a missing schema or function says.
_MISSING = {"3F000", "42883", "42P01"}

_SUPPORTED = (
    "asyncpg, psycopg 3 (sync or async), SQLAlchemy 2 (Connection, Session and their async kin), "
    "or a Django connection"
)


def _statement(schema: str, placeholder: str) -> str:
    return (
        f"select job_id, existed, conflict from {schema}.submit_jobs"  # noqa: S608 - checked name
        f"(cast({placeholder} as json), false)"
    )


def _question(schema: str, placeholder: str) -> str:
    return f"select {schema}.is_encrypted(cast({placeholder} as text))"


async def submit_through(connection: Any, jobs: Sequence[NewJob], schema: str) -> list[Submitted]:
    """By a coroutine, on an asynchronous connection."""
    body = msgspec.json.encode(jobs).decode()
    rows = await _fetch(connection, partial(_statement, schema), body, schema)
    return [Submitted(*row) for row in rows]


async def ask_encrypted(connection: Any, namespace: str, schema: str) -> bool:
    """Whether the namespace is, as the caller's transaction sees it."""
    rows = await _fetch(connection, partial(_question, schema), namespace, schema)
    return bool(rows[0][0])


def submit_through_sync(connection: Any, jobs: Sequence[NewJob], schema: str) -> list[Submitted]:
    """By plain code, on a synchronous connection."""
    body = msgspec.json.encode(jobs).decode()
    rows = _fetch_sync(connection, partial(_statement, schema), body, schema)
    return [Submitted(*row) for row in rows]


def ask_encrypted_sync(connection: Any, namespace: str, schema: str) -> bool:
    rows = _fetch_sync(connection, partial(_question, schema), namespace, schema)
    return bool(rows[0][0])


async def _fetch(
    connection: Any, statement: Callable[[str], str], value: str, schema: str
) -> Sequence[Any]:
    """`statement` takes the driver's placeholder for the one value."""
    kind = driver_of(connection)
    await _check_transaction(kind, connection)
    rows: Sequence[Any]
    try:
        if kind == "asyncpg":
            rows = await connection.fetch(statement("$1"), value)
        elif kind == "psycopg-async":
            async with connection.cursor(row_factory=_tuples()) as cursor:
                await cursor.execute(statement("%s"), [value])
                rows = await cursor.fetchall()
        elif kind == "sqlalchemy-async":
            result = await connection.execute(_text(statement(":value")), {"value": value})
            rows = result.all()
        else:
            raise ConfigError(
                f"{_describe(connection)} is a synchronous connection: use submit_sync(), or pass "
                "an asynchronous one"
            )
    except Exception as error:
        raise _translated(error, schema) from error
    return rows


def _fetch_sync(
    connection: Any, statement: Callable[[str], str], value: str, schema: str
) -> Sequence[Any]:
    kind = driver_of(connection)
    _check_transaction_sync(kind, connection)
    rows: Sequence[Any]
    try:
        if kind == "psycopg":
            with connection.cursor(row_factory=_tuples()) as cursor:
                rows = cursor.execute(statement("%s"), [value]).fetchall()
        elif kind == "sqlalchemy":
            rows = connection.execute(_text(statement(":value")), {"value": value}).all()
        elif kind == "django":
            with connection.cursor() as cursor:
                cursor.execute(statement("%s"), [value])
                rows = cursor.fetchall()
        else:
            raise ConfigError(
                f"{_describe(connection)} is an asynchronous connection: use `await submit()`"
            )
    except Exception as error:
        raise _translated(error, schema) from error
    return rows


async def _check_transaction(kind: str, connection: Any) -> None:
    """Refuses a connection whose statements commit by themselves: it is no transaction of anybody's."""
    if kind == "asyncpg":
        commits = not connection.is_in_transaction()
    elif kind == "psycopg-async":
        commits = _psycopg_commits(connection)
    elif kind == "sqlalchemy-async":
        found = connection
        if not _is_of(connection, "sqlalchemy.ext.asyncio.engine."):
            found = await connection.connection()
        commits = _sqlalchemy_commits(found.sync_connection)
    else:
        return  # a synchronous one: refused with advice
    if commits:
        raise _no_transaction(kind, connection)


def _check_transaction_sync(kind: str, connection: Any) -> None:
    if kind == "psycopg":
        commits = _psycopg_commits(connection)
    elif kind == "sqlalchemy":
        found = connection.connection() if _is_of(connection, "sqlalchemy.orm.") else connection
        commits = _sqlalchemy_commits(found)
    elif kind == "django":
        commits = connection.get_autocommit() and not connection.in_atomic_block
    else:
        return  # an asynchronous one: refused with advice
    if commits:
        raise _no_transaction(kind, connection)


def _psycopg_commits(connection: Any) -> bool:
    # 0 is IDLE. With autocommit on, `with connection.transaction()` opens a real one all the same.
    return bool(connection.autocommit) and connection.info.transaction_status == 0


def _sqlalchemy_commits(connection: Any) -> bool:
    return bool(getattr(connection.connection.dbapi_connection, "autocommit", False))


def _is_of(connection: Any, module: str) -> bool:
    return any(f"{kind.__module__}.".startswith(module) for kind in type(connection).__mro__)


_BEGIN = {
    "asyncpg": "`async with connection.transaction():`",
    "psycopg-async": "`async with connection.transaction():`, or autocommit=False",
    "psycopg": "`with connection.transaction():`, or autocommit=False",
    "sqlalchemy-async": "another isolation level than AUTOCOMMIT",
    "sqlalchemy": "another isolation level than AUTOCOMMIT",
    "django": "`with transaction.atomic():`",
}


def _no_transaction(kind: str, connection: Any) -> ConfigError:
    return ConfigError(
        f"{_describe(connection)} is in no transaction: what it executes is committed at once, and the "
        f"job would not depend on what you do next. Begin one first ({_BEGIN[kind]}), or leave "
        "`connection` out"
    )


def driver_of(connection: Any) -> str:
    """Which driver a connection belongs to; a clear error when it's none we know."""
    modules = {
        f"{kind.__module__}.{kind.__qualname__}"
        for kind in type(connection).__mro__
        if kind is not object
    }
    if _POOLS & modules:
        raise ConfigError(
            f"{_describe(connection)} hands out connections and is none itself: pass the connection or "
            "session that your transaction is open on"
        )
    for driver, known in _DRIVERS:
        if known(modules):
            return driver
    raise ConfigError(f"{_describe(connection)} is no connection Rota knows: pass {_SUPPORTED}")


def _starts(*prefixes: str) -> Callable[[set[str]], bool]:
    return lambda modules: any(module.startswith(prefixes) for module in modules)


_POOLS = frozenset([
    "asyncpg.pool.Pool", "psycopg_pool.base.BasePool", "sqlalchemy.engine.base.Engine",
    "sqlalchemy.orm.session.sessionmaker", "sqlalchemy.ext.asyncio.engine.AsyncEngine",
    "sqlalchemy.ext.asyncio.session.async_sessionmaker", "sqlalchemy.pool.base.Pool",
])  # fmt: skip
_DRIVERS: list[tuple[str, Callable[[set[str]], bool]]] = [
    ("asyncpg", _starts("asyncpg.")),
    ("psycopg-async", _starts("psycopg.connection_async.", "psycopg.AsyncConnection")),
    ("psycopg", _starts("psycopg.connection.", "psycopg.Connection")),
    ("sqlalchemy-async", _starts("sqlalchemy.ext.asyncio.")),
    ("sqlalchemy", _starts("sqlalchemy.engine.base.Connection", "sqlalchemy.orm.")),
    ("django", _starts("django.db.backends.", "django.utils.connection.")),
]


def _describe(connection: Any) -> str:
    kind = type(connection)
    return f"connection of type {kind.__module__}.{kind.__qualname__}"


def _tuples() -> Any:
    from psycopg.rows import tuple_row

    return tuple_row


def _text(statement: str) -> Any:
    from sqlalchemy import text

    return text(statement)


def _translated(error: Exception, schema: str) -> Exception:
    state = _sqlstate(error)
    if state == REFUSED:
        return SubmitError(str(error).splitlines()[0].partition("rota: ")[2] or str(error))
    if state in _MISSING:
        return SchemaMismatch(
            f"the connection's database has no Rota schema {schema!r} that this code can use: is it "
            "the database that ROTA_DATABASE_URL names, and was `rota migrate` run there?"
        )
    return error


def _sqlstate(error: BaseException | None) -> str | None:
    """Drivers wrap each other's errors; the SQLSTATE is on one of them."""
    while error is not None:
        state = getattr(error, "sqlstate", None)
        if isinstance(state, str):
            return state
        error = getattr(error, "orig", None) or error.__cause__
    return None
