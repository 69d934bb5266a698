"""The wall between tenants, in the database: questions about one namespace, asked as its tenant.

Protocol. The server's connections are set to the role `rota_tenant` and to a namespace before they are
handed out; row-level security then shows and takes only rows of that namespace. The setting stays with
the connection and is remembered, so that the next question about the same namespace costs nothing.
Behind a transaction pooler it can't stay: there every question is a transaction that begins with it.

Where the role could not be made (see `rota.raise_walls()`), the `where` of each query is the only wall,
and the server says so when it starts.

COPY can't pass row-level security. A bulk of jobs, whose namespace is not the client's to name, is
copied by a connection without it.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import AsyncIterator
from typing import Any

from rota.config import check_name
from rota.store import ambient
from rota.store.database import Connection, Database, translated_errors

_NOT_WALLED = frozenset({"copy"})  # transactions, by name


class Wall:
    """A database whose connections are lent to tenants, one namespace at a time."""

    def __init__(self, database: Database, *, stands: bool) -> None:
        self.database = database
        self.stands = stands
        self._tenants: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()

    @classmethod
    async def find(cls, database: Database) -> Wall:
        """With whether it stands: the role is there, and we may take it on."""
        stands: bool = await database.fetchval("wall_stands")
        return cls(database, stands=stands)

    def behind(self, namespace: str) -> WalledDatabase:
        return WalledDatabase(self, check_name("namespace", namespace))

    def setting(self, namespace: str, *, local: bool) -> str:
        how = "local " if local else ""
        # Names can't hold a quote: `behind` has checked it.
        return (
            f"set {how}role rota_tenant; set {how}{self.database.schema}.namespace = '{namespace}'"
        )

    async def lend(self, connection: Connection, namespace: str) -> None:
        real = connection._con  # the pool's own; what we hold is a stand-in for one use
        if self.stands and self._tenants.get(real) != namespace:
            await connection.execute(self.setting(namespace, local=False))
            self._tenants[real] = namespace

    async def take_back(self, connection: Connection) -> None:
        """For a use that no wall may stand in the way of."""
        if self._tenants.pop(connection._con, None) is not None:
            await connection.execute("reset role")


class WalledDatabase(Database):
    """The same database as its tenant sees it. Opened and closed with the one behind it."""

    def __init__(self, wall: Wall, namespace: str) -> None:
        outer = wall.database
        super().__init__(outer.url, outer.settings.replace(namespace=namespace), hot=outer.is_hot)
        self.behind_pooler = outer.behind_pooler
        self._wall = wall
        self.namespace = namespace

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        async with self._wall.database.connection() as connection:
            if not self.behind_pooler:
                await self._wall.lend(connection, self.namespace)
            yield connection

    async def end_backend(self, backend: int) -> None:
        """As the one behind it, whose connections they are: a tenant may end nobody's."""
        async with self._wall.database.connection() as connection:
            await self._wall.take_back(connection)
            await self._wall.database.end_backend_on(connection, backend)

    @contextlib.asynccontextmanager
    async def transaction(
        self, name: str = "transaction", *, lent: bool = False
    ) -> AsyncIterator[Connection]:
        if name not in _NOT_WALLED:
            async with super().transaction(name, lent=lent) as connection:
                yield connection
            return
        async with self._wall.database.connection() as connection:
            await self._wall.take_back(connection)
            async with connection.transaction():
                yield connection

    @contextlib.asynccontextmanager
    async def _in_transaction(self, lent: bool = False) -> AsyncIterator[Connection]:
        async with super()._in_transaction(lent) as connection:
            if self.behind_pooler and self._wall.stands:
                await connection.execute(self._wall.setting(self.namespace, local=True))
            yield connection

    def _scope(self) -> contextlib.AbstractAsyncContextManager[Connection]:
        if (joined := ambient.connection_of(self)) is not None:
            return contextlib.nullcontext(joined)
        return self._in_transaction() if self.behind_pooler else self.connection()

    async def dedicated(self) -> Connection:
        connection = await self._wall.database.dedicated()
        if self._wall.stands:
            with translated_errors(self.url):
                await connection.execute(self._wall.setting(self.namespace, local=False))
        return connection
