"""Connections to PostgreSQL that survive restarts, failovers and poolers.

Protocol. A `Database` is a small pool. Before it opens, one probe connection finds out whether a
transaction pooler (PgBouncer) stands in between: the process id a pooler hands out at log-in is not
that of the backend that answers. Behind a pooler there are no prepared statements and no session
settings: what a hot statement needs is then set within its own transaction, and LISTEN is not used.

`hot` databases pin the planner: the queue's statements have exactly one good plan, by index, and a
planner that knows a table only as it was a minute ago (empty, or full) must not choose another.

Whatever breaks is raised as StoreUnavailable when trying again may help. Nothing is retried here:
only the caller knows whether its statement may have been committed, and what to do then.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeAlias

import asyncpg

from rota.config import Settings
from rota.errors import ConfigError, StoreUnavailable, SubmitError
from rota.store.queries import load_queries

Connection: TypeAlias = Any  # asyncpg's, pooled or not

PINNED_PLANS = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
}

REFUSED = "RT001"  # the SQLSTATE of what rota.submit_jobs() refuses

# What a restart, a failover, a cut line or an overloaded server look like. Everything else is a bug
# or bad input, and must not be retried.
TRANSIENT: tuple[type[BaseException], ...] = (
    OSError,
    asyncio.TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.OperatorInterventionError,
    asyncpg.TooManyConnectionsError,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.LockNotAvailableError,
)


def _session_settings(settings: Settings, hot: bool) -> dict[str, str]:
    milliseconds = str(int(settings.statement_timeout * 1000))
    return {
        "statement_timeout": milliseconds,
        # A client that stops inside a transaction must not hold its locks for ever.
        "idle_in_transaction_session_timeout": milliseconds,
        "jit": "off",
        **(PINNED_PLANS if hot else {"plan_cache_mode": "force_custom_plan"}),
    }


async def _keep_session(connection: Connection) -> None:
    """In place of asyncpg's reset between uses, a round trip: we leave no state behind."""


class Database:
    """A pool of connections, and the named queries of one schema."""

    def __init__(self, url: str, settings: Settings, *, hot: bool = False) -> None:
        self.url = url
        self.schema = settings.schema
        self.settings = settings
        self.queries = load_queries(settings.schema)
        self.behind_pooler = False
        self._hot = hot
        self._session = _session_settings(settings, hot)
        self._pool: asyncpg.Pool[Any] | None = None

    async def open(self) -> None:
        if self._pool is not None:
            return
        with translated_errors(self.url):
            self.behind_pooler = await self._detect_pooler()
            self._pool = await asyncpg.create_pool(
                min_size=0,
                max_size=self.settings.pool_size,
                max_inactive_connection_lifetime=300,
                reset=_keep_session,
                **self._connect_arguments(),
            )

    def _connect_arguments(self) -> dict[str, Any]:
        shared: dict[str, Any] = {
            "dsn": self.url,
            "timeout": self.settings.connect_timeout,
            # Longer than the server's own limit: it only fires when the line is dead.
            "command_timeout": self.settings.statement_timeout + 5,
        }
        if self.behind_pooler:
            return {**shared, "statement_cache_size": 0}
        keepalives = {"tcp_keepalives_idle": "15", "tcp_keepalives_interval": "5",
                      "tcp_keepalives_count": "3"}  # fmt: skip
        application = {"application_name": "rota"}
        return {**shared, "server_settings": {**self._session, **keepalives, **application}}

    async def _detect_pooler(self) -> bool:
        try:
            probe = await asyncpg.connect(
                self.url, timeout=self.settings.connect_timeout, statement_cache_size=0
            )
        except ValueError:
            # Not quoted, nor chained: it may hold a piece of the password.
            raise ConfigError(
                "the database URL can't be read; it looks like postgresql://user:password@host:5432/"
                "name. Special characters in the password must be percent-encoded (/ is %2F, @ is %40)"
            ) from None
        try:
            backend: int = await probe.fetchval("select pg_backend_pid()")
            return backend != probe.get_server_pid()
        finally:
            await probe.close(timeout=5)

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                async with asyncio.timeout(5):
                    await pool.close()
            except TRANSIENT:
                pool.terminate()

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """One connection, outside a transaction."""
        if self._pool is None:
            raise StoreUnavailable("the database is not open")
        with translated_errors(self.url):
            async with self._pool.acquire(timeout=self.settings.connect_timeout) as connection:
                yield connection

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        async with self.connection() as connection, connection.transaction():
            if self.behind_pooler:
                await connection.execute(
                    ";".join(
                        f"set local {name} = '{value}'" for name, value in self._session.items()
                    )
                )
            yield connection

    def _scope(self) -> contextlib.AbstractAsyncContextManager[Connection]:
        return self.transaction() if self.behind_pooler and self._hot else self.connection()

    async def fetch(self, name: str, *arguments: Any) -> list[Any]:
        async with self._scope() as connection:
            rows: list[Any] = await connection.fetch(self.queries[name], *arguments)
            return rows

    async def fetchval(self, name: str, *arguments: Any) -> Any:
        async with self._scope() as connection:
            return await connection.fetchval(self.queries[name], *arguments)

    async def dedicated(self) -> Connection:
        """A connection outside the pool, for heartbeats, LISTEN and handlers' own transactions."""
        with translated_errors(self.url):
            return await asyncpg.connect(**self._connect_arguments())


# What no repetition will mend: the URL, the password, the database's name.
MISCONFIGURED: tuple[type[BaseException], ...] = (
    asyncpg.ClientConfigurationError,
    asyncpg.InvalidPasswordError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
)


@contextlib.contextmanager
def translated_errors(url: str) -> Iterator[None]:
    """The driver's errors as Rota's: those that a repetition may mend, and those it won't."""
    try:
        yield
    except MISCONFIGURED as error:
        raise ConfigError(f"the database URL doesn't work: {error}") from error
    except asyncpg.QueryCanceledError as error:
        raise StoreUnavailable(f"a statement took too long: {error}") from error
    except TRANSIENT as error:
        detail = str(error) or type(error).__name__
        raise StoreUnavailable(f"the database could not be reached: {detail}") from error
    except asyncpg.PostgresError as error:
        if error.sqlstate == REFUSED:
            raise SubmitError(str(error.args[0]).removeprefix("rota: ")) from error
        raise
