"""Submitting inside the caller's own transaction, through the driver that they use.

One SQL function does the work, so a driver only has to run one statement. Drivers are recognised by the
module of the connection's class: none of them has to be installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from rota.errors import ConfigError, RotaError, SchemaMismatch, SubmitError
from rota.model import SignalSent
from rota.store.driver_errors import FULL, REFUSED, queue_full
from rota.store.rows import NewJob, NewRun, NewSignal, Submitted

# SQLSTATEs of a missing schema, function or table.
_MISSING = {"3F000", "42883", "42P01"}

Statement = Callable[[str], str]  # takes the driver's placeholder for the one value


class _Driver(NamedTuple):
    name: str
    prefixes: tuple[str, ...]  # of the modules and classes of its connections
    begin: str  # how a transaction is begun


_LEVEL = "another isolation level than AUTOCOMMIT"
_DRIVERS = (
    _Driver("asyncpg", ("asyncpg.",), "`async with connection.transaction():`"),
    _Driver("psycopg-async", ("psycopg.connection_async.", "psycopg.AsyncConnection"),
            "`async with connection.transaction():`, or autocommit=False"),
    _Driver("psycopg", ("psycopg.connection.", "psycopg.Connection"),
            "`with connection.transaction():`, or autocommit=False"),
    _Driver("sqlalchemy-async", ("sqlalchemy.ext.asyncio.",), _LEVEL),
    _Driver("sqlalchemy", ("sqlalchemy.engine.base.Connection", "sqlalchemy.orm."), _LEVEL),
    _Driver("django", ("django.db.backends.", "django.utils.connection."),
            "`with transaction.atomic():`"),
)  # fmt: skip
_POOLS = frozenset([
    "asyncpg.pool.Pool", "psycopg_pool.base.BasePool", "sqlalchemy.engine.base.Engine",
    "sqlalchemy.orm.session.sessionmaker", "sqlalchemy.ext.asyncio.engine.AsyncEngine",
    "sqlalchemy.ext.asyncio.session.async_sessionmaker", "sqlalchemy.pool.base.Pool",
])  # fmt: skip


def _statement(schema: str, placeholder: str) -> str:
    return (
        f"select job_id, existed, conflict, null, warning from {schema}.submit_jobs"  # noqa: S608 - checked name
        f"(cast({placeholder} as json), false, 'caller')"
    )


def _unique_statement(schema: str, placeholder: str) -> str:
    return (
        f"select job_id, existed, conflict, outcome from {schema}.submit_unique"  # noqa: S608 - checked name
        f"(cast({placeholder} as json), false, true)"
    )


def _statement_for(jobs: Sequence[NewJob], schema: str) -> Statement:
    unique = any(job.unique is not None for job in jobs)
    return partial(_unique_statement if unique else _statement, schema)


def _start_statement(schema: str, placeholder: str) -> str:
    return (
        f"select run_id, existed, conflict from {schema}.start_run_of"  # noqa: S608 - checked name
        f"(cast({placeholder} as json))"
    )


def _start_all_statement(schema: str, placeholder: str) -> str:
    return (
        f"select run_id, existed, conflict from {schema}.start_runs_of"  # noqa: S608 - checked name
        f"(cast({placeholder} as json)) order by place"
    )


def _send_statement(schema: str, placeholder: str) -> str:
    return (
        f"select signal_id, existed, run_id from {schema}.send_signal_of"  # noqa: S608 - checked name
        f"(cast({placeholder} as json))"
    )


def _question(schema: str, placeholder: str) -> str:
    return f"select {schema}.is_encrypted(cast({placeholder} as text))"


async def submit_through(connection: Any, jobs: Sequence[NewJob], schema: str) -> list[Submitted]:
    """Submit on an asynchronous connection."""
    body = msgspec.json.encode(jobs).decode()
    rows = await _fetch(connection, _statement_for(jobs, schema), body, schema)
    return [Submitted(*row) for row in rows]


async def start_through(connection: Any, run: NewRun, schema: str) -> Submitted:
    """Start a run of a workflow in the caller's transaction."""
    body = msgspec.json.encode(run).decode()
    rows = await _fetch(connection, partial(_start_statement, schema), body, schema)
    return Submitted(*rows[0])


async def start_all_through(
    connection: Any, runs: Sequence[NewRun], schema: str
) -> list[Submitted]:
    """Start many runs in the caller's transaction."""
    body = msgspec.json.encode(runs).decode()
    rows = await _fetch(connection, partial(_start_all_statement, schema), body, schema)
    return [Submitted(*row) for row in rows]


async def send_through(connection: Any, signal: NewSignal, schema: str) -> SignalSent:
    """Send a signal in the caller's transaction."""
    body = msgspec.json.encode(signal).decode()
    rows = await _fetch(connection, partial(_send_statement, schema), body, schema)
    return SignalSent(*rows[0])


async def ask_encrypted(connection: Any, namespace: str, schema: str) -> bool:
    """Return whether the namespace is encrypted, as the caller's transaction sees it."""
    rows = await _fetch(connection, partial(_question, schema), namespace, schema)
    return bool(rows[0][0])


def submit_through_sync(connection: Any, jobs: Sequence[NewJob], schema: str) -> list[Submitted]:
    """Submit on a synchronous connection."""
    body = msgspec.json.encode(jobs).decode()
    rows = _fetch_sync(connection, _statement_for(jobs, schema), body, schema)
    return [Submitted(*row) for row in rows]


def start_through_sync(connection: Any, run: NewRun, schema: str) -> Submitted:
    """Start a run on a synchronous connection."""
    body = msgspec.json.encode(run).decode()
    rows = _fetch_sync(connection, partial(_start_statement, schema), body, schema)
    return Submitted(*rows[0])


def start_all_through_sync(connection: Any, runs: Sequence[NewRun], schema: str) -> list[Submitted]:
    """Start many runs on a synchronous connection."""
    body = msgspec.json.encode(runs).decode()
    rows = _fetch_sync(connection, partial(_start_all_statement, schema), body, schema)
    return [Submitted(*row) for row in rows]


def ask_encrypted_sync(connection: Any, namespace: str, schema: str) -> bool:
    rows = _fetch_sync(connection, partial(_question, schema), namespace, schema)
    return bool(rows[0][0])


_JSON_COLUMNS = frozenset({"payload", "headers", "attempts", "progress", "result", "error"})
_JOB_COLUMNS = """id namespace task lane state priority due_at created_at payload headers key guarantee
attempt max_attempts timeout crashes attempts run_id step node token started_at finished_at cancel_at
progress result error"""


def find_job_through_sync(
    connection: Any, namespace: str, id: UUID, schema: str
) -> dict[str, Any] | None:
    """Return the row of a job as the caller's connection sees it: in a transaction, with its writes.

    For connections with cursors: psycopg's and Django's.
    """
    listed = ", ".join(
        f"{name}::text as {name}" if name in _JSON_COLUMNS else name
        for name in _JOB_COLUMNS.split()
    )
    query = f"select {listed} from {schema}.job where namespace = %s and id = %s"  # noqa: S608
    with _translated_errors(schema), connection.cursor() as cursor:
        cursor.execute(query, [namespace, id])
        row, columns = cursor.fetchone(), cursor.description
    if row is None:
        return None
    return dict(zip((column[0] for column in columns), row, strict=True))


async def _fetch(connection: Any, statement: Statement, value: str, schema: str) -> Sequence[Any]:
    driver = driver_of(connection)
    rows: Sequence[Any]
    with _translated_errors(schema):
        if driver.name == "asyncpg":
            _check_transaction(driver, connection, not connection.is_in_transaction())
            rows = await connection.fetch(statement("$1"), value)
        elif driver.name == "psycopg-async":
            _check_transaction(driver, connection, _psycopg_commits(connection))
            async with connection.cursor(row_factory=tuple_rows()) as cursor:
                await cursor.execute(statement("%s"), [value])
                rows = await cursor.fetchall()
        elif driver.name == "sqlalchemy-async":
            rows = await connection.run_sync(_fetch_sync, statement, value, schema)
        else:
            raise ConfigError(
                f"{_describe(connection)} is a synchronous connection: use submit_sync(), or pass "
                "an asynchronous one"
            )
    return rows


def _fetch_sync(connection: Any, statement: Statement, value: str, schema: str) -> Sequence[Any]:
    driver = driver_of(connection)
    rows: Sequence[Any]
    with _translated_errors(schema):
        if driver.name == "psycopg":
            _check_transaction(driver, connection, _psycopg_commits(connection))
            with connection.cursor(row_factory=tuple_rows()) as cursor:
                rows = cursor.execute(statement("%s"), [value]).fetchall()
        elif driver.name == "sqlalchemy":
            from sqlalchemy import text

            # A session's connection() is that of its transaction; a connection's is the driver's.
            found = connection.connection() if callable(connection.connection) else connection
            commits = getattr(found.connection.dbapi_connection, "autocommit", False)
            _check_transaction(driver, connection, bool(commits))
            rows = connection.execute(text(statement(":value")), {"value": value}).all()
        elif driver.name == "django":
            commits = connection.get_autocommit() and not connection.in_atomic_block
            _check_transaction(driver, connection, commits)
            with connection.cursor() as cursor:
                cursor.execute(statement("%s"), [value])
                rows = cursor.fetchall()
        else:
            raise ConfigError(
                f"{_describe(connection)} is an asynchronous connection: use `await submit()`"
            )
    return rows


def _psycopg_commits(connection: Any) -> bool:
    # 0 is IDLE. With autocommit on, `with connection.transaction()` opens a real one all the same.
    return bool(connection.autocommit) and connection.info.transaction_status == 0


def _check_transaction(driver: _Driver, connection: Any, commits: bool) -> None:
    """Refuse a connection on which each statement is committed by itself."""
    if commits:
        raise ConfigError(
            f"{_describe(connection)} is in no transaction: what it executes is committed at once, and "
            f"the job would not depend on what you do next. Begin one first ({driver.begin}), or leave "
            "`connection` out"
        )


def driver_of(connection: Any) -> _Driver:
    """Return the driver of a connection; a `ConfigError` when it isn't one that is supported."""
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
    for driver in _DRIVERS:
        if any(module.startswith(driver.prefixes) for module in modules):
            return driver
    raise ConfigError(
        f"{_describe(connection)} is not a supported connection: pass one of asyncpg, psycopg 3 (sync "
        "or async), SQLAlchemy 2 (Connection, Session and their async kin), or a Django connection"
    )


def _describe(connection: Any) -> str:
    kind = type(connection)
    return f"connection of type {kind.__module__}.{kind.__qualname__}"


def tuple_rows() -> Any:
    """Return psycopg's factory for rows that are tuples."""
    from psycopg.rows import tuple_row

    return tuple_row


@contextmanager
def _translated_errors(schema: str) -> Iterator[None]:
    try:
        yield
    except RotaError:
        raise
    except Exception as error:
        state = _sqlstate(error)
        if state == REFUSED:
            message = str(error).splitlines()[0].partition("rota: ")[2]
            raise SubmitError(message or str(error)) from error
        if state == FULL:
            message = str(error).splitlines()[0].partition("rota: ")[2]
            raise queue_full(message or str(error), _detail(error)) from error
        if state in _MISSING:
            raise SchemaMismatch(
                f"the connection's database has no Rota schema {schema!r} that this code can use: is it "
                "the database that ROTA_DATABASE_URL names, and was `rota migrate` run there?"
            ) from error
        raise


def _detail(error: BaseException | None) -> str | None:
    """Return the DETAIL of a database's error, which asyncpg and psycopg have in different places."""
    while error is not None:
        diagnosis = getattr(error, "diag", None)
        found = getattr(error, "detail", None) or getattr(diagnosis, "message_detail", None)
        if isinstance(found, str):
            return found
        error = getattr(error, "orig", None) or error.__cause__
    return None


def _sqlstate(error: BaseException | None) -> str | None:
    """Return the SQLSTATE of an error: drivers wrap each other's errors, and one of them has it."""
    while error is not None:
        state = getattr(error, "sqlstate", None)
        if isinstance(state, str):
            return state
        error = getattr(error, "orig", None) or error.__cause__
    return None
