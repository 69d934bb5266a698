"""The base of all operations: connections, and transactions that record their change."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from rota.operations.connection import Connections
from rota.store.changes import Change, changing
from rota.store.database import Database

if TYPE_CHECKING:
    from rota.operations.rota import Rota


class InstallationOperations:
    """Operations that concern a whole installation.

    `on_change` is called after each change, so that a server drops what it has cached.
    """

    def __init__(
        self, connections: Connections, on_change: Callable[[], None] = lambda: None
    ) -> None:
        self._connections = connections
        self._on_change = on_change

    async def _database(self) -> Database:
        return (await self._connections.opened()).database

    @asynccontextmanager
    async def _changing(
        self, action: str, subject: str, *, namespace: str | None = None, before: Any = None,
        after: Any = None,
    ) -> AsyncIterator[Change]:  # fmt: skip
        """Open the transaction of a change, which ends with its audit record."""
        async with changing(
            await self._database(), action, subject, namespace=namespace, before=before, after=after
        ) as change:
            yield change
        self._on_change()


class Operations(InstallationOperations):
    """Operations on one noun of a namespace."""

    def __init__(self, rota: Rota) -> None:
        super().__init__(rota.connector)
        self._rota = rota

    @property
    def _namespace(self) -> str:
        return self._rota.namespace
