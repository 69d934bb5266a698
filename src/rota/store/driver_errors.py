"""The errors of asyncpg, classified and raised as Rota's own."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterator
from contextvars import ContextVar

import asyncpg
import msgspec

from rota.errors import ConfigError, QueueFull, StoreUnavailable, SubmitError
from rota.store.hosts import MISCONFIGURED

REFUSED = "RT001"  # the SQLSTATE of what rota.submit_jobs() refuses
FULL = "RT004"  # and of what a queue has no room for

# The driver's errors for a restart, a failover, a cut line or an overloaded server.
TRANSIENT: tuple[type[BaseException], ...] = (
    OSError,
    asyncio.TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    # No host suits; or the server has closed the session, and the line isn't closed yet.
    asyncpg.InternalClientError,
    # A migration has changed what a prepared statement uses: prepared again it works.
    asyncpg.InvalidCachedStatementError,
)

# SQLSTATE classes of the server's state: a lost connection, a rollback by a conflict, no more room
# (disk, memory, connections), an operator's action, an error of the system, a bug of the server.
_TRANSIENT_CLASSES = frozenset({"08", "40", "53", "57", "58", "XX"})
_TRANSIENT_STATES = frozenset({
    "25006",  # the server is read-only: a standby
    "25P03", "25P04",  # a transaction was idle, or open, for too long
    "55006", "55P03",  # something is in use, or locked
})  # fmt: skip

# SQLSTATE classes of a bad value: it can't be converted, breaks a constraint, or is too large.
_BAD_VALUE_CLASSES = frozenset({"22", "23", "54"})
# The same, and what a function or a check refuses.
_DATA_CLASSES = _BAD_VALUE_CLASSES | {"21", "44", "P0"}


def _class_of(error: BaseException) -> str | None:
    return (error.sqlstate or "")[:2] if isinstance(error, asyncpg.PostgresError) else None


# asyncpg raises InterfaceError for "improper use": of a line or a pool that is closed or busy, which is
# an outage, and of its API (a wrong number of arguments, a value of a wrong type), which is a bug or bad
# input. It tells them apart by words alone; those of the outages are here.
_LINE_IS_GONE = re.compile(
    r"connection is clos|pool is clos|pool is not initialized|being initialized|released back|"
    r"operation is in progress|is cancelling|authentication",
    re.IGNORECASE,
)


def _is_misuse(error: BaseException) -> bool:
    """Return whether an InterfaceError is a bug or bad input: a repetition would fail as well."""
    # Its errors of values are ValueErrors, too, and quote the value, whatever that says.
    return isinstance(error, asyncpg.InterfaceError) and (
        isinstance(error, ValueError) or not _LINE_IS_GONE.search(str(error))
    )


def is_transient(error: BaseException) -> bool:
    """Return whether the same statement may succeed later. Other errors are bugs or bad input."""
    if _is_misuse(error):
        return False
    return (
        isinstance(error, TRANSIENT)
        or _class_of(error) in _TRANSIENT_CLASSES
        or getattr(error, "sqlstate", None) in _TRANSIENT_STATES
    )


def is_bad_value(error: BaseException) -> bool:
    """Return whether one of a statement's values made it fail: without it, the others succeed."""
    return _class_of(error) in _BAD_VALUE_CLASSES


def blames_the_data(error: BaseException) -> bool:
    """Return whether a statement failed by its data, and would fail again with the same."""
    # The driver itself refuses some values.
    refused = isinstance(error, ValueError | OverflowError | TypeError)
    return refused or _class_of(error) in _DATA_CLASSES


# Errors of a server that has to be left: it was demoted, is shutting down, or is gone.
FAREWELLS: tuple[type[BaseException], ...] = (
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.PostgresConnectionError,
    asyncpg.InternalClientError,
)

# How often the database has answered in this context, for a comparison of before and after.
answers: ContextVar[int] = ContextVar("rota_database_answers", default=0)


@contextlib.contextmanager
def translated_errors() -> Iterator[None]:
    """Raise the driver's errors as Rota's: `StoreUnavailable` where a repetition may help."""
    try:
        yield
    except MISCONFIGURED as error:
        raise ConfigError(f"the database URL doesn't work: {error}") from error
    except asyncpg.InsufficientPrivilegeError as error:
        lacking = StoreUnavailable(
            f"the role that Rota logs in with may not do this: {error}. `rota grants ROLE --apply --for "
            "worker` (or scheduler, server, read), run by the owner of the tables, grants what it needs"
        )
        lacking.answered = True
        raise lacking from error
    except Exception as error:
        if is_transient(error):
            raise _unavailable(error) from error
        if isinstance(error, asyncpg.PostgresError) and error.sqlstate == REFUSED:
            raise SubmitError(str(error.args[0]).removeprefix("rota: ")) from error
        if isinstance(error, asyncpg.PostgresError) and error.sqlstate == FULL:
            raise queue_full(str(error.args[0]), getattr(error, "detail", None)) from error
        raise
    answers.set(answers.get() + 1)


class _Full(msgspec.Struct):
    """The detail of an error of rota.check_intake()."""

    queue: str
    namespace: str
    quota: str
    depth: int
    max_depth: int
    retry_after: float | None = None


def queue_full(message: str, detail: str | None) -> QueueFull:
    """Return the error of a queue without room, from the message and the detail of the database's."""
    message = message.removeprefix("rota: ")
    try:
        full = msgspec.json.decode(detail or "", type=_Full)
    except msgspec.MsgspecError:
        return QueueFull(message, retry_after=1.0)
    if full.retry_after is not None:
        message += f"; try again in {full.retry_after:g} s"
    return QueueFull(message, **msgspec.structs.asdict(full))


def _unavailable(error: Exception) -> StoreUnavailable:
    """Return an error that distinguishes a refusal by the server from a server out of reach."""
    detail = str(error) or type(error).__name__
    refused = isinstance(error, asyncpg.PostgresError) and not isinstance(error, FAREWELLS)
    if isinstance(error, asyncpg.QueryCanceledError):
        message = f"a statement took too long: {detail}"
    elif isinstance(error, asyncpg.LockNotAvailableError):
        message = (
            f"another transaction has not ended for too long: {detail}. It may have submitted a job of "
            "the same unique key"
        )
    elif isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        message = (
            f"the database takes no writes: {detail}. Is it a standby? A URL that names all servers "
            "(host1,host2) leads to the one that takes writes"
        )
    elif refused:
        message = f"the database can't do this at the moment: {detail}"
    else:
        message = f"the database could not be reached: {detail}"
    unavailable = StoreUnavailable(message)
    unavailable.answered = refused
    return unavailable
