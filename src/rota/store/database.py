"""Connections to PostgreSQL that survive restarts, failovers and poolers.

Protocol. A `Database` is a small pool. Before it opens, one probe connection finds out whether a
transaction pooler (PgBouncer) stands in between: the process id a pooler hands out at log-in is not
that of the backend that answers. Behind a pooler there are no prepared statements and no session
settings: what a hot statement needs is then set within its own transaction, and LISTEN is not used.

`hot` databases pin the planner: the queue's statements have exactly one good plan, by index, and a
planner that knows a table only as it was a minute ago (empty, or full) must not choose another.

What a database's owner has set for the database or a role (`alter role ... set`) doesn't reach our SQL:
every connection states the settings that its meaning depends on (see `session`). A connection that was
lent to a handler is cleaned before anybody else gets it.

Whatever breaks is raised as StoreUnavailable when trying again may help. Nothing is retried here:
only the caller knows whether its statement may have been committed, and what to do then.

Failover. The URL may name several hosts (see `hosts`). A connection whose server turns out to take no
writes, or to be going down, is thrown away, and the pool's others with it: the next ones are made to
whoever is the primary by then.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from typing import Any, TypeAlias

import asyncpg

from rota.config import Settings
from rota.errors import ConfigError, StoreUnavailable, SubmitError
from rota.lib import failpoints
from rota.lib.ids import new_id
from rota.store import ambient, session
from rota.store.encrypted import Encryption
from rota.store.hosts import MISCONFIGURED, Hosts
from rota.store.queries import load_queries

Connection: TypeAlias = Any  # asyncpg's, pooled or not

PINNED_PLANS = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_indexscan": "on",
    "enable_nestloop": "on",
    "plan_cache_mode": "force_generic_plan",
}

REFUSED = "RT001"  # the SQLSTATE of what rota.submit_jobs() refuses

# What a restart, a failover, a cut line or an overloaded server look like to the driver.
_TRANSIENT: tuple[type[BaseException], ...] = (
    OSError,
    asyncio.TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    # No host suits; or a server's last words have been read, and its line isn't closed yet.
    asyncpg.InternalClientError,
    # A prepared statement that a migration has overtaken: prepared anew it works.
    asyncpg.InvalidCachedStatementError,
)

# SQLSTATE classes that speak of the server and not of what it was asked: a lost connection, a rollback
# by a conflict, no more room (disk, memory, connections), an operator, the system, bugs of its own.
_TRANSIENT_CLASSES = frozenset({"08", "40", "53", "57", "58", "XX"})
_TRANSIENT_STATES = frozenset({
    "25006",  # the server takes no writes: a standby
    "25P03", "25P04",  # a transaction was idle, or open, for too long
    "55006", "55P03",  # something is in use, or locked
})  # fmt: skip

# SQLSTATE classes that blame what was given: a bad value, a constraint, something too large.
_BAD_VALUE_CLASSES = frozenset({"22", "23", "54"})


def is_transient(error: BaseException) -> bool:
    """Whether the same statement may succeed later. Everything else is a bug or bad input."""
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        return (
            state[:2] in _TRANSIENT_CLASSES
            or state in _TRANSIENT_STATES
            or isinstance(error, _TRANSIENT)
        )
    return isinstance(error, _TRANSIENT)


def is_bad_value(error: BaseException) -> bool:
    """Whether a statement failed by what it was given, so that without it others would succeed."""
    return (
        isinstance(error, asyncpg.PostgresError)
        and (error.sqlstate or "")[:2] in _BAD_VALUE_CLASSES
    )


# Said by a server that is no longer the one to talk to: demoted, going down, or gone.
FAREWELLS: tuple[type[BaseException], ...] = (
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.PostgresConnectionError,
    asyncpg.InternalClientError,
)

# Classes of SQLSTATE that blame what a statement was given: the same again fails again.
_DATA_CLASSES = ("21", "22", "23", "44", "54", "P0")

_HOT_IDLE_SECONDS = 5.0

# How often the database has answered in this context: whoever wants to know whether it did compares.
answers: ContextVar[int] = ContextVar("rota_database_answers", default=0)


def _session_settings(settings: Settings, hot: bool) -> dict[str, str]:
    # The engine's own transactions are milliseconds long: one that is idle belongs to a node that
    # was stopped, and what it has locked must not hold up those who take over from it.
    idle = min(settings.statement_timeout, _HOT_IDLE_SECONDS) if hot else settings.statement_timeout
    return {
        **session.MEANING,
        "statement_timeout": str(int(settings.statement_timeout * 1000)),
        "idle_in_transaction_session_timeout": str(int(idle * 1000)),
        "jit": "off",
        **(PINNED_PLANS if hot else {"plan_cache_mode": "force_custom_plan"}),
    }


async def _keep_session(connection: Connection) -> None:
    """In place of asyncpg's reset between uses, a round trip: we leave no state behind."""


async def _clean(connection: Connection) -> None:
    """After a handler. What it did is decided by now: a connection that can't be cleaned is closed."""
    if connection.is_closed():
        return
    try:
        await connection.execute(session.CLEAN)
    except BaseException as error:
        connection.terminate()
        if not isinstance(error, Exception):
            raise


class Database:
    """A pool of connections, and the named queries of one schema."""

    def __init__(self, url: str, settings: Settings, *, hot: bool = False) -> None:
        self.url = url
        self.schema = settings.schema
        self.settings = settings
        self.queries = load_queries(settings.schema)
        self.behind_pooler = False
        self._hot = hot
        self.encryption = Encryption(settings)
        self._name = f"rota {new_id().hex[-8:]}"  # by which its own connections are known
        self._hosts = Hosts(url, settings.connect_timeout)
        self.session = _session_settings(settings, hot)
        if self._hosts.chooses_by_writes:
            del self.session["default_transaction_read_only"]  # it is how a standby is told apart
        self._pool: asyncpg.Pool[Any] | None = None

    @property
    def is_hot(self) -> bool:
        return self._hot

    def sibling(self, settings: Settings) -> Database:
        """Another one to the same place with other settings, not hot, and not open yet."""
        return Database(self.url, settings)

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
                connect=self._hosts.connect,
                **self._connect_arguments(),
            )

    def _connect_arguments(self) -> dict[str, Any]:
        shared: dict[str, Any] = {
            # Longer than the server's own limit: it only fires when the line is dead.
            "command_timeout": self.settings.statement_timeout + 5,
        }
        if self.behind_pooler:
            return {**shared, "statement_cache_size": 0}
        keepalives = {"tcp_keepalives_idle": "15", "tcp_keepalives_interval": "5",
                      "tcp_keepalives_count": "3"}  # fmt: skip
        application = {"application_name": self._name}
        return {**shared, "server_settings": {**self.session, **keepalives, **application}}

    async def _detect_pooler(self) -> bool:
        try:
            probe = await self._hosts.connect(statement_cache_size=0)
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
            except _TRANSIENT:
                pool.terminate()

    async def known_encryption(self) -> Encryption:
        """Knowing, not longer ago than a few seconds, whether the namespace is encrypted."""
        if self.encryption.stale:
            await self.encryption.look(lambda space: self.fetchval("is_encrypted", space))
        return self.encryption

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """One connection, outside a transaction."""
        if self._pool is None:
            raise StoreUnavailable("the database is not open")
        backend: int | None = None
        try:
            with translated_errors(self.url):
                async with self._pool.acquire(timeout=self._hosts.patience) as connection:
                    backend = connection.get_server_pid()
                    try:
                        yield connection
                    except FAREWELLS:
                        await self._throw_away(connection)
                        raise
        except StoreUnavailable as error:
            error.backend = backend
            raise

    async def end_backend(self, backend: int) -> None:
        """What was sent to it and hasn't arrived never will; what it has begun is rolled back.

        Before something is repeated whose answer was lost: a line that stalls may deliver the first
        request long after the second was answered. Not behind a pooler, where nobody knows its line.
        """
        if self.behind_pooler:
            return
        async with self.connection() as connection:
            await self.end_backend_on(connection, backend)

    async def end_backend_on(self, connection: Connection, backend: int) -> None:
        if self.behind_pooler:
            return
        if not await connection.fetchval(self.queries["end_backend"], backend, self._name):
            raise StoreUnavailable("an earlier attempt at this is still under way")

    async def _throw_away(self, connection: Connection) -> None:
        with contextlib.suppress(asyncpg.InterfaceError):  # it is closed already
            connection.terminate()
        if self._pool is not None:
            await self._pool.expire_connections()

    @contextlib.asynccontextmanager
    async def transaction(
        self, name: str = "transaction", *, lent: bool = False
    ) -> AsyncIterator[Connection]:
        """A connection inside a transaction, which ends with the block. Its name is for failpoints.

        lent: to code that isn't ours, whose settings must not reach the connection's next user.
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
        """A transaction in which the database's own methods run as well, called by the same task.

        For transactions that wait for locks: with a connection of their own, those methods could wait
        for one that others hold while they wait for the lock.
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
                        # By the commit, what was set would stay with a connection that others use.
                        await connection.execute(session.RESET)
            finally:
                if lent and not self.behind_pooler:
                    await _clean(connection)

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

    async def fetch(self, name: str, *arguments: Any) -> list[Any]:
        """Run a named query, and commit it."""
        if failpoints.armed:
            await failpoints.reach(f"{name}:before")
        async with self._scope() as connection:
            rows: list[Any] = await connection.fetch(self.queries[name], *arguments)
        if failpoints.armed:
            await failpoints.reach(f"{name}:after")
        return rows

    async def fetchval(self, name: str, *arguments: Any) -> Any:
        """The first value of the first row; None without one."""
        if failpoints.armed:
            await failpoints.reach(f"{name}:before")
        async with self._scope() as connection:
            value = await connection.fetchval(self.queries[name], *arguments)
        if failpoints.armed:
            await failpoints.reach(f"{name}:after")
        return value

    async def fetch_on(self, connection: Connection, name: str, *arguments: Any) -> list[Any]:
        """As `fetch`, on a dedicated connection outside a transaction."""
        if failpoints.armed:
            await failpoints.reach(f"{name}:before")
        apart = self._begun(connection) if self.behind_pooler else contextlib.nullcontext()
        with translated_errors(self.url):
            async with apart:
                rows: list[Any] = await connection.fetch(self.queries[name], *arguments)
        if failpoints.armed:
            await failpoints.reach(f"{name}:after")
        return rows

    async def dedicated(self) -> Connection:
        """A connection outside the pool, for heartbeats, LISTEN and handlers' own transactions."""
        with translated_errors(self.url):
            return await self._hosts.connect(**self._connect_arguments())


def blames_the_data(error: BaseException) -> bool:
    """Whether a statement failed for what it was given, while other data would have passed."""
    if isinstance(error, asyncpg.PostgresError):
        return (error.sqlstate or "")[:2] in _DATA_CLASSES
    return isinstance(error, ValueError | OverflowError | TypeError)  # refused by the driver


@contextlib.contextmanager
def translated_errors(url: str) -> Iterator[None]:
    """The driver's errors as Rota's: those that a repetition may mend, and those it won't."""
    try:
        yield
    except MISCONFIGURED as error:
        raise ConfigError(f"the database URL doesn't work: {error}") from error
    except Exception as error:
        if is_transient(error):
            raise _unavailable(error) from error
        if isinstance(error, asyncpg.PostgresError) and error.sqlstate == REFUSED:
            raise SubmitError(str(error.args[0]).removeprefix("rota: ")) from error
        raise
    answers.set(answers.get() + 1)


def _unavailable(error: Exception) -> StoreUnavailable:
    """Says whether the server was reached, and refused, or could not be reached at all."""
    detail = str(error) or type(error).__name__
    refused = isinstance(error, asyncpg.PostgresError) and not isinstance(error, FAREWELLS)
    if isinstance(error, asyncpg.QueryCanceledError):
        message = f"a statement took too long: {detail}"
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
