"""The transaction that a change is made in, found by everything the change calls.

Protocol. `within` says that a connection is inside a transaction; while it lasts, the database's own
methods, called by the same asyncio task, run on that connection and commit with it. `change`: the
transaction ends with an audit row, so that changes inside it aren't recorded by themselves. A
task that was started meanwhile inherits the context variable but not the transaction: a connection
serves one task at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any


class _Open:
    __slots__ = ("change", "connection", "database", "task")

    def __init__(self, database: object, connection: Any, change: bool) -> None:
        self.database = database
        self.connection = connection
        self.change = change
        self.task = asyncio.current_task()


_open: ContextVar[_Open | None] = ContextVar("rota_open_change", default=None)


@contextlib.contextmanager
def within(database: object, connection: Any, *, change: bool) -> Iterator[None]:
    token = _open.set(_Open(database, connection, change or change_of(database) is not None))
    try:
        yield
    finally:
        _open.reset(token)


def connection_of(database: object) -> Any:
    """Return the connection of the transaction that this task has open in this database, or None."""
    found = _found(database)
    return None if found is None else found.connection


def change_of(database: object) -> Any:
    """Return the connection of the change that this task is making in this database, or None."""
    found = _found(database)
    return None if found is None or not found.change else found.connection


def _found(database: object) -> _Open | None:
    found = _open.get()
    if found is None or found.database is not database:
        return None
    return found if found.task is asyncio.current_task() else None
