"""The open transaction of a task, which the store's methods join.

Protocol. Inside the block of `within`, the database's own methods, called by the same asyncio task, run
on its connection and commit with it. `change`: the transaction ends with an audit row, so that changes
inside it aren't recorded by themselves. A task that is started meanwhile inherits the context variable
but not the transaction: a connection serves one task at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple


class _Open(NamedTuple):
    database: object
    connection: Any
    change: bool
    task: asyncio.Task[Any] | None


_open: ContextVar[_Open | None] = ContextVar("rota_open_change", default=None)


@contextlib.contextmanager
def within(database: object, connection: Any, *, change: bool) -> Iterator[None]:
    """Make a connection's transaction the one that this task's calls join."""
    change = change or change_of(database) is not None
    token = _open.set(_Open(database, connection, change, asyncio.current_task()))
    try:
        yield
    finally:
        _open.reset(token)


def connection_of(database: object) -> Any:
    """Return the connection of the transaction that this task has open in this database, or None."""
    found = _open.get()
    if found is None or found.database is not database or found.task is not asyncio.current_task():
        return None
    return found.connection


def change_of(database: object) -> Any:
    """Return the connection of the change that this task is making in this database, or None."""
    connection, found = connection_of(database), _open.get()
    return connection if found is not None and found.change else None
