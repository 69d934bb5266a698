"""Connections to PostgreSQL that survive restarts, failovers and poolers.

Protocol. A `Database` is a small pool. Before it opens, one probe connection finds out whether a
pooler stands in between (see `pooler`). Behind a transaction pooler there are no prepared statements and
no session settings: what a hot statement needs is then set within its own transaction, and LISTEN is not
used. Behind a session pooler, settings are made by statements after a connection was made: poolers
refuse most of them at log-in.

`hot` databases pin the planner: the queue's statements have exactly one good plan, by index, and with
statistics of a minute ago (of an empty table, or a full one) the planner could choose another.

Settings of the database or a role (`alter role ... set`) don't reach our SQL: every connection states
the settings that its meaning depends on (see `session`). A connection that was lent to a handler is
cleaned before its next use.

Errors are raised as StoreUnavailable when trying again may help. Nothing is retried here: only the
caller can decide what to do when its statement may have been committed.

Failover. The URL may name several hosts (see `hosts`). A connection whose server turns out to be
read-only or shutting down is closed, and the pool's others with it: the next ones are made to the server
that is the primary by then.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator
from typing import Any, TypeAlias, TypeVar

import asyncpg
from asyncpg.pgproto.pgproto import UUID as FastUUID  # noqa: N811 - a class that is renamed

from rota.config import Settings
from rota.errors import ConfigError, StoreUnavailable
from rota.lib import failpoints, ids
from rota.lib.ids import new_id
from rota.store import ambient, session
from rota.store.credentials import Password
from rota.store.driver_errors import FAREWELLS, TRANSIENT, translated_errors
from rota.store.encrypted import Encryption
from rota.store.hosts import Hosts
from rota.store.kept import Kept, is_closed
from rota.store.pooler import Mode, detect_mode
from rota.store.rows import to_value
from rota.store.sql import load_queries

ids.make_uuid = FastUUID  # ten times as fast

T = TypeVar("T")
Connection: TypeAlias = Any  # asyncpg's, pooled or not


async def _keep_session(connection: Connection) -> None:
    """Replace asyncpg's reset between uses, which is a round trip: we leave no state behind."""


class Database:
    """A pool of connections, and the named queries of one schema."""

    def __init__(
        self, url: str, settings: Settings, *, hot: bool = False, reads: bool = False
    ) -> None:
        self.url = url
        self.schema = settings.schema
        self.settings = settings
        self.queries = load_queries(settings.schema)
        self.behind_pooler = False  # one by transaction
        self._pooler: Mode = "none"
        self._knows_backends = True
        self._hot = hot
        self.encryption = Encryption(settings)
        self._name = f"rota {new_id().hex[-8:]}"  # which its own connections have
        self.password = Password(settings)
        self._hosts = Hosts(
            url,
            settings.connect_timeout,
            password=self.password,
            hook=settings.connect,
            reads=reads,
        )
        self.session = session.settings_of(settings, hot)
        if self._hosts.chooses_by_writes or reads:
            del self.session["default_transaction_read_only"]  # by which a standby is recognised
        self._pool: asyncpg.Pool[Any] | None = None
        self._kept: Kept | None = None  # of its connections

    @property
    def is_hot(self) -> bool:
        return self._hot

    def sibling(self, settings: Settings) -> Database:
        """Return a database with the same URL and other settings, not hot, and not open yet."""
        return Database(self.url, settings)

    async def open(self) -> None:
        if self._pool is not None:
            return
        with translated_errors():
            await self._find_pooler()
            self._pool = await asyncpg.create_pool(
                min_size=0,
                max_size=self.settings.pool_size,
                max_inactive_connection_lifetime=300,
                reset=_keep_session,
                connect=self._connect,
                **self._connect_arguments(),
            )
            self._kept = Kept(self._pool)

    def _connect_arguments(self) -> dict[str, Any]:
        shared: dict[str, Any] = {
            # Longer than the server's own limit: it only fires when the line is dead.
            "command_timeout": self.settings.statement_timeout + 5,
        }
        if self.behind_pooler:
            return {**shared, "statement_cache_size": 0}
        if self._pooler == "session":
            return shared
        keepalives = {"tcp_keepalives_idle": "15", "tcp_keepalives_interval": "5",
                      "tcp_keepalives_count": "3"}  # fmt: skip
        application = {"application_name": self._name}
        return {**shared, "server_settings": {**self.session, **keepalives, **application}}

    async def _connect(self, *_: Any, **arguments: Any) -> Connection:
        """Make a connection of the pool, or a dedicated one."""
        connection = await self._hosts.connect(**arguments)
        if self._pooler == "session":
            await connection.execute(self._stated)
        return connection

    @functools.cached_property
    def _stated(self) -> str:
        """The settings as statements, for where they can't be given at log-in."""
        return session.for_session({**self.session, "application_name": self._name})

    async def _find_pooler(self) -> None:
        try:
            found, self._knows_backends = await detect_mode(self._hosts.connect)
        except ValueError:
            # Not quoted, nor chained: it may hold a piece of the password.
            raise ConfigError(
                "the database URL can't be read; it looks like postgresql://user:password@host:5432/"
                "name. Special characters in the password must be percent-encoded (/ is %2F, @ is %40)"
            ) from None
        told = self.settings.pooler
        self._pooler = found if told == "auto" else told
        self.behind_pooler = self._pooler == "transaction"

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        kept, self._kept = self._kept, None
        if pool is not None and kept is not None:
            try:
                async with asyncio.timeout(5):
                    await kept.give_back_all()
                    await pool.close()
            except TRANSIENT:
                pool.terminate()

    async def known_encryption(self) -> Encryption:
        """Return the encryption, with what was read of its namespace at most five seconds ago."""
        encryption = self.encryption
        if encryption.stale:
            encryption.learn(await self.fetchval("is_encrypted", encryption.namespace))
        return encryption

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Acquire a connection, outside a transaction."""
        if self._pool is None or self._kept is None:
            raise StoreUnavailable("the database is not open")
        backend: int | None = None
        try:
            with translated_errors():
                kept = self._kept
                connection = await kept.take(self._hosts.patience)
                generation, clean = kept.generation, False
                try:
                    backend = connection.get_server_pid()
                    yield connection
                    clean = True
                except FAREWELLS:
                    await self._throw_away(connection)
                    raise
                finally:
                    await kept.give_back(connection, clean=clean, generation=generation)
        except StoreUnavailable as error:
            error.backend = backend
            raise

    async def end_backend(self, backend: int) -> None:
        """End a backend, so that nothing sent to it arrives any more; what it has begun is rolled back.

        For a statement that is repeated because its answer was lost: a line that stalls may deliver the
        first request long after the second was answered. Does nothing behind a pooler, where the process
        id that we know is not the backend's.
        """
        if not self._knows_backends:
            return
        async with self.connection() as connection:
            await self.end_backend_on(connection, backend)

    async def end_backend_on(self, connection: Connection, backend: int) -> None:
        if not self._knows_backends:
            return
        if not await connection.fetchval(self.queries["end_backend"], backend, self._name):
            raise StoreUnavailable("an earlier attempt at this is still under way")

    async def _throw_away(self, connection: Connection) -> None:
        with contextlib.suppress(asyncpg.InterfaceError):  # it is closed already
            connection.terminate()
        if self._pool is not None and self._kept is not None:
            await self._pool.expire_connections()
            await self._kept.give_back_all()

    @contextlib.asynccontextmanager
    async def transaction(
        self, name: str = "transaction", *, lent: bool = False
    ) -> AsyncIterator[Connection]:
        """Open a transaction that ends with the block. Its name is for failpoints.

        `lent`: its connection is lent to user code, whose settings must not reach the next user of it.
        """
        async with self._in_transaction(lent) as connection:
            if failpoints.armed:
                await failpoints.reach(f"{name}:begun")
            yield connection
            if failpoints.armed:
                await failpoints.reach(f"{name}:before_commit")
        if failpoints.armed:
            await failpoints.reach(f"{name}:after_commit")

    @contextlib.asynccontextmanager
    async def shared_transaction(self, name: str = "transaction") -> AsyncIterator[Connection]:
        """Open a transaction that the database's own methods join, called by the same task.

        For transactions that wait for locks: with another connection, those methods could wait for one
        that is held by a task that waits for the lock.
        """
        async with self.transaction(name) as connection:
            with ambient.within(self, connection, change=False):
                yield connection

    @contextlib.asynccontextmanager
    async def _in_transaction(self, lent: bool = False) -> AsyncIterator[Connection]:
        if (joined := ambient.connection_of(self)) is not None:
            async with joined.transaction():
                yield joined
            return
        async with self.connection() as connection:
            try:
                async with self._begun(connection):
                    yield connection
                    if lent and self.behind_pooler:
                        # After the commit, settings would stay on a connection that others use.
                        await connection.execute(session.RESET)
            finally:
                if lent and not self.behind_pooler:
                    await self._clean(connection)

    async def _clean(self, connection: Connection) -> None:
        """Reset a connection after a handler's transaction has ended, or close it if that fails."""
        if is_closed(connection):
            return
        # At log-in, `reset all` comes back to our settings; behind a session pooler it doesn't.
        again = f"; {self._stated}" if self._pooler == "session" else ""
        try:
            await connection.execute(f"{session.CLEAN}{again}")
        except BaseException as error:
            connection.terminate()
            if not isinstance(error, Exception):
                raise

    @contextlib.asynccontextmanager
    async def _begun(self, connection: Connection) -> AsyncIterator[None]:
        async with connection.transaction():
            if self.behind_pooler:
                await connection.execute(session.for_one_transaction(self.session))
            yield

    def _scope(self) -> contextlib.AbstractAsyncContextManager[Connection]:
        if (joined := ambient.connection_of(self)) is not None:
            return contextlib.nullcontext(joined)
        return self._in_transaction() if self.behind_pooler else self.connection()

    async def fetch(self, name: str, *args: Any, on: Connection = None) -> list[Any]:
        """Run a named query and commit it; `on` a connection in a transaction, as part of that."""
        if on is not None:
            rows: list[Any] = await on.fetch(self.queries[name], *args)
            return rows
        if failpoints.armed:
            await failpoints.reach(f"{name}:before")
        async with self._scope() as connection:
            rows = await connection.fetch(self.queries[name], *args)
        if failpoints.armed:
            await failpoints.reach(f"{name}:after")
        return rows

    async def fetchval(self, name: str, *args: Any, on: Connection = None) -> Any:
        """Return the first value of the first row, or None without one."""
        rows = await self.fetch(name, *args, on=on)
        return rows[0][0] if rows else None

    async def fetch_on(self, connection: Connection, name: str, *arguments: Any) -> list[Any]:
        """As `fetch`, on a dedicated connection outside a transaction."""
        if failpoints.armed:
            await failpoints.reach(f"{name}:before")
        apart = self._begun(connection) if self.behind_pooler else contextlib.nullcontext()
        with translated_errors():
            async with apart:
                rows: list[Any] = await connection.fetch(self.queries[name], *arguments)
        if failpoints.armed:
            await failpoints.reach(f"{name}:after")
        return rows

    async def dedicated(self) -> Connection:
        """Return a connection outside the pool, for heartbeats, LISTEN and handlers' transactions."""
        with translated_errors():
            return await self._connect(**self._connect_arguments())


class Store:
    """The base of the stores, which have one short method for each named query.

    `on` is a connection in a transaction, of which the query becomes a part. For results see `to_value`.
    """

    def __init__(self, database: Database) -> None:
        self.database = database

    async def _one(self, kind: type[T], name: str, *args: Any, on: Connection = None) -> T:
        """Return the row of a query that always has one."""
        return to_value((await self.database.fetch(name, *args, on=on))[0], kind)

    async def _first(self, kind: type[T], name: str, *args: Any, on: Connection = None) -> T | None:
        """Return the first row, or None without one."""
        rows = await self.database.fetch(name, *args, on=on)
        return to_value(rows[0], kind) if rows else None

    async def _all(self, kind: type[T], name: str, *args: Any, on: Connection = None) -> list[T]:
        """Return all rows."""
        return [to_value(row, kind) for row in await self.database.fetch(name, *args, on=on)]
