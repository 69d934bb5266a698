"""Row security between tenants: queries about one namespace run as the role `rota_tenant`.

Protocol. A connection is set to the role `rota_tenant` and to a namespace before it is lent out;
row-level security then shows and accepts only rows of that namespace. The setting stays with the
connection and is remembered, so that the next query about the same namespace costs nothing. Behind a
transaction pooler it can't stay: there every query is a transaction that begins with it.

Where the role could not be created (see `rota.enable_row_security()`), only the `where` of each query
separates namespaces, and the server logs a warning when it starts.

COPY doesn't work under row-level security. A bulk of jobs, whose namespace the client doesn't choose, is
copied by a connection without it.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import AsyncIterator
from typing import Any

from rota.config import check_name
from rota.store.database import Connection, Database
from rota.store.driver_errors import translated_errors

_WITHOUT_ROW_SECURITY = frozenset({"copy"})  # transactions, by name


class RowSecurity:
    """A database whose connections are lent to tenants, one namespace at a time."""

    def __init__(self, database: Database, *, enabled: bool) -> None:
        self.database = database
        self.enabled = enabled
        self._tenants: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()

    @classmethod
    async def find(cls, database: Database) -> RowSecurity:
        """Find out whether it is enabled: the role exists, and our role may be set to it."""
        enabled: bool = await database.fetchval("row_security_enabled")
        return cls(database, enabled=enabled)

    def for_namespace(self, namespace: str) -> TenantDatabase:
        return TenantDatabase(self, check_name("namespace", namespace))

    def setting(self, namespace: str, *, local: bool) -> str:
        how = "local " if local else ""
        # Names can't contain a quote: `for_namespace` has checked it.
        return (
            f"set {how}role rota_tenant; set {how}{self.database.schema}.namespace = '{namespace}'"
        )

    async def lend(self, connection: Connection, namespace: str) -> None:
        real = connection._con  # the pool's own; what we hold is a stand-in for one use
        if self.enabled and self._tenants.get(real) != namespace:
            await connection.execute(self.setting(namespace, local=False))
            self._tenants[real] = namespace

    async def take_back(self, connection: Connection) -> None:
        """Reset the connection's role, for a use that row security would prevent."""
        if self._tenants.pop(connection._con, None) is not None:
            await connection.execute("reset role")


class TenantDatabase(Database):
    """The database as one tenant sees it. Opened and closed with the database it belongs to."""

    def __init__(self, row_security: RowSecurity, namespace: str) -> None:
        outer = row_security.database
        super().__init__(outer.url, outer.settings.replace(namespace=namespace), hot=outer.is_hot)
        self.behind_pooler, self._pooler = outer.behind_pooler, outer._pooler
        self._row_security = row_security
        self.namespace = namespace

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        async with self._row_security.database.connection() as connection:
            if not self.behind_pooler:
                await self._row_security.lend(connection, self.namespace)
            yield connection

    async def end_backend(self, backend: int) -> None:
        """End it as the database's own role: rota_tenant may not end backends."""
        async with self._row_security.database.connection() as connection:
            await self._row_security.take_back(connection)
            await self._row_security.database.end_backend_on(connection, backend)

    @contextlib.asynccontextmanager
    async def transaction(
        self, name: str = "transaction", *, lent: bool = False
    ) -> AsyncIterator[Connection]:
        if name not in _WITHOUT_ROW_SECURITY:
            async with super().transaction(name, lent=lent) as connection:
                yield connection
            return
        async with self._row_security.database.connection() as connection:
            await self._row_security.take_back(connection)
            async with connection.transaction():
                yield connection

    @contextlib.asynccontextmanager
    async def _in_transaction(self, lent: bool = False) -> AsyncIterator[Connection]:
        async with super()._in_transaction(lent) as connection:
            if self.behind_pooler and self._row_security.enabled:
                await connection.execute(self._row_security.setting(self.namespace, local=True))
            yield connection

    async def dedicated(self) -> Connection:
        connection = await self._row_security.database.dedicated()
        if self._row_security.enabled:
            with translated_errors():
                await connection.execute(self._row_security.setting(self.namespace, local=False))
        return connection
