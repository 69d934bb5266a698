"""The transaction that a change is made in, found by everything the change calls.

Protocol. `within` says that a connection is inside a transaction of a change; while it lasts, the
database's own methods, called by the same asyncio task, run on that connection and commit with it. A
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
    __slots__ = ("connection", "database", "task")

    def __init__(self, database: object, connection: Any) -> None:
        self.database = database
        self.connection = connection
        self.task = asyncio.current_task()


_open: ContextVar[_Open | None] = ContextVar("rota_open_change", default=None)


@contextlib.contextmanager
def within(database: object, connection: Any) -> Iterator[None]:
    token = _open.set(_Open(database, connection))
    try:
        yield
    finally:
        _open.reset(token)


def connection_of(database: object) -> Any:
    """The connection of the change that this task is making in this database, or None."""
    found = _open.get()
    if found is None or found.database is not database:
        return None
    return found.connection if found.task is asyncio.current_task() else None
