"""SQLAlchemy and SQLModel in exactly_once tasks: a session on the transaction that ends the job.

    @app.task(guarantee="exactly_once")
    def refund(ctx: SyncContext, order_id: int) -> None:
        with session(ctx) as db:
            db.get(Order, order_id).state = "refunded"

Protocol. The session works on `ctx.connection`, which Rota has opened and will commit together with the
finish of the job. Its own transactions are savepoints inside that: `commit()` releases one, `rollback()`
undoes what came after it, and neither ends the job's transaction. What is written happens if and only if
the job succeeds. The connection stays Rota's: it is not closed here.

To submit jobs in a session's transaction, no help is needed: ``task.options(connection=session)``.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from typing import Any

from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from rota.context import Context, SyncContext

_lent: ContextVar[Any] = ContextVar("rota_lent_connection")


class _Lent:
    """Rota's psycopg connection, lent: it can't be closed, and its transaction can't be ended."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def close(self) -> None: ...

    def commit(self) -> None: ...

    def rollback(self) -> None: ...


class _LentAsync:
    """Rota's asyncpg connection, lent. Transactions that are begun on it are savepoints."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def close(self, *_: Any, **__: Any) -> None: ...

    def terminate(self) -> None: ...

    async def set_type_codec(self, *_: Any, **__: Any) -> None:
        """Leave JSON as text, as Rota's own statements need it; SQLAlchemy reads texts as well."""


def _current() -> Any:
    return _lent.get()


async def _current_async() -> Any:
    return _lent.get()


@functools.cache
def _engine() -> Any:
    # One per process, so that what it asks of the server once is asked once.
    return create_engine(
        "postgresql+psycopg://", creator=_current, poolclass=NullPool, pool_reset_on_return=None,
        use_native_hstore=False,  # it would be looked up on each connection
    )  # fmt: skip


@functools.cache
def _async_engine() -> Any:
    return create_async_engine(
        "postgresql+asyncpg://", async_creator=_current_async, poolclass=NullPool,
        pool_reset_on_return=None,
    )  # fmt: skip


@contextlib.contextmanager
def session(
    ctx: SyncContext, *, class_: type[Session] = Session, **options: Any
) -> Iterator[Session]:
    """Open a session on the transaction of an exactly_once plain function.

    Its changes are flushed at the end of the block. An exception leaves it to Rota to undo them.

    Args:
        ctx: the context of the task.
        class_: the class of the session, such as SQLModel's.
        options: of the session, such as ``expire_on_commit=False``.
    """
    token = _lent.set(_Lent(ctx.connection))
    try:
        with _engine().connect() as connection:
            connection.begin()
            with class_(connection, join_transaction_mode="create_savepoint", **options) as opened:
                yield opened
                opened.commit()
    finally:
        _lent.reset(token)


@contextlib.asynccontextmanager
async def async_session(
    ctx: Context, *, class_: type[AsyncSession] = AsyncSession, **options: Any
) -> AsyncIterator[AsyncSession]:
    """Open a session on the transaction of an exactly_once coroutine; see `session`."""
    token = _lent.set(_LentAsync(ctx.connection))
    try:
        async with _async_engine().connect() as connection:
            await connection.begin()
            async with class_(
                connection, join_transaction_mode="create_savepoint", **options
            ) as opened:
                yield opened
                await opened.commit()
            await connection.commit()  # a savepoint of asyncpg's
    finally:
        _lent.reset(token)
