"""Sandboxes of the pytest plugin, on schemas that are used again; loaded when a test uses one.

Protocol. The first test makes a schema, which takes a second. Its tables are emptied when a test ends
and those that came with rows get them back; the next test takes it. A schema on which something still
holds a lock fails its test, and isn't taken again. At the end of the session all are dropped. A session
that is killed leaves its schemas behind: their names begin with `rota_test_`.

The schema is made and emptied by the thread of synchronous callers. A test that is a coroutine has
connections of its own event loop, opened at first use and closed when the coroutine ends, while that
loop still runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from datetime import UTC, datetime
from typing import Any, TypeVar

import asyncpg

from rota.app import App
from rota.config import Settings
from rota.errors import ConfigError, RotaError
from rota.lib.ids import new_id
from rota.lib.sync_bridge import sync_bridge
from rota.model import Job
from rota.store.database import Connection, Database
from rota.store.migrate import migrate
from rota.testing import Sandbox, SyncSandbox, open_sandbox, test_database_url

log = logging.getLogger("rota.testing")

T = TypeVar("T")
Around = Callable[[Callable[..., Coroutine[Any, Any, T]]], Callable[..., Coroutine[Any, Any, T]]]
_PATIENCE = 10  # seconds for a lock, before a schema is given up
_KEPT = "kept_"

# Children before parents: a table is emptied after those that refer to it.
_TABLES = """
with recursive tables as (
    select oid, relname::text as name from pg_class
    where relnamespace = $1::regnamespace and relkind in ('r', 'p') and not relispartition
), depths as (
    select oid, 0 as depth from tables
    union
    select c.confrelid, d.depth + 1 from depths d join pg_constraint c on c.conrelid = d.oid
    where c.contype = 'f' and c.confrelid <> c.conrelid and d.depth < 20
)
select t.name, (
    select string_agg(quote_ident(attname), ', ' order by attnum) from pg_attribute
    where attrelid = t.oid and attnum > 0 and not attisdropped and attgenerated = ''
) as columns
from tables t join depths d using (oid) group by t.oid, t.name order by max(d.depth), t.name
"""


class Schemas:
    """The schemas of a session, by the URL of their database."""

    def __init__(self) -> None:
        self._spare: dict[str, list[str]] = {}
        self._emptying: dict[tuple[str, str], str] = {}  # the statements that empty a schema

    def take(self, url: str) -> str:
        """Return the name of a schema that is empty, or of one that doesn't exist yet."""
        spare = self._spare.setdefault(url, [])
        return spare.pop() if spare else f"rota_test_{new_id().hex[12:]}"

    async def prepare(self, url: str, connection: Connection, schema: str) -> None:
        """Make the schema, unless it exists, and learn how to empty it."""
        if (url, schema) in self._emptying:
            return
        await migrate(connection, schema)
        emptying = [f"set local lock_timeout = '{_PATIENCE}s'"]
        filling = []
        for name, columns in await connection.fetch(_TABLES, schema):
            table = f"{schema}.{name}"
            if name == "audit":  # which refuses deletes
                emptying.append(f"select {schema}.trim_audit('infinity')")
                continue
            emptying.append(f"delete from {table}")  # noqa: S608
            if await connection.fetchval(f"select exists (select from {table})"):  # noqa: S608
                kept = f"{schema}.{_KEPT}{name}"
                await connection.execute(f"create table {kept} as table {table}")
                filling.append(
                    f"insert into {table} ({columns}) overriding system value "  # noqa: S608
                    f"select {columns} from {kept}"
                )
        # Parents before children.
        self._emptying[url, schema] = ";".join([*emptying, *reversed(filling)])

    async def give_back(self, url: str, connection: Connection, schema: str) -> None:
        """Empty a schema for the next test. What can't be emptied is left to the end of the session."""
        try:
            async with connection.transaction():
                await connection.execute(self._emptying[url, schema])
        except asyncpg.LockNotAvailableError:
            raise RotaError(
                "the test has left a transaction open that holds a lock on the tables of its sandbox: "
                "commit it, roll it back, or close its connection before the test ends"
            ) from None
        self._spare[url].append(schema)

    def drop(self) -> None:
        """Drop all schemas, at the end of the session."""
        if self._emptying:
            sync_bridge.call(self._drop, "drop")

    async def _drop(self) -> None:
        for url, schema in self._emptying:
            database = Database(url, Settings(database_url=url))
            await database.open()
            try:
                async with database.connection() as connection, connection.transaction():
                    await connection.execute(f"set local lock_timeout = '{_PATIENCE}s'")
                    await connection.execute(f"drop schema if exists {schema} cascade")
            except (asyncpg.PostgresError, RotaError):
                log.warning("schema %s is left behind", schema, exc_info=True)
            finally:
                await database.close()
        self._emptying.clear()


@contextlib.contextmanager
def opened(
    app: App,
    schemas: Schemas,
    *,
    is_async: bool,
    now: datetime | str | None = None,
    **settings: Any,
) -> Iterator[tuple[Sandbox | SyncSandbox, Around[Any]]]:
    """Open a sandbox for one test, and return it with what goes around a coroutine that uses it."""
    stack = contextlib.AsyncExitStack()
    entered = functools.partial(
        stack.enter_async_context, _opened(app, schemas, _moment(now), settings)
    )
    own: Sandbox = sync_bridge.call(entered, "isolated")
    try:
        if is_async:
            sandbox = LoopSandbox(own)
            yield sandbox, sandbox.around
        else:
            yield SyncSandbox(own), lambda function: function
    finally:
        sync_bridge.call(stack.aclose, "close")


@contextlib.asynccontextmanager
async def _opened(
    app: App, schemas: Schemas, now: datetime | None, settings: dict[str, Any]
) -> AsyncIterator[Sandbox]:
    url = await test_database_url(app)
    schema = schemas.take(url)
    private = app.settings.replace(**settings, database_url=url, schema=schema)
    database = Database(url, private, hot=True)
    await database.open()
    try:
        async with database.connection() as connection:
            await schemas.prepare(url, connection, schema)
        try:
            async with open_sandbox(app, database, private, now) as sandbox:
                yield sandbox
        finally:
            async with database.connection() as connection:
                await schemas.give_back(url, connection, schema)
    finally:
        await database.close()


def _moment(given: datetime | str | None) -> datetime | None:
    if not isinstance(given, str):
        return given
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        raise ConfigError(f"now must be a time such as 2030-01-01T09:00Z, not {given!r}") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


class LoopSandbox(Sandbox):
    """The sandbox of a coroutine: with connections of the event loop that it is used in."""

    def __init__(self, sandbox: Sandbox) -> None:
        super().__init__(sandbox.app, sandbox._database, sandbox.now())
        self._of_loops: dict[asyncio.AbstractEventLoop, Database] = {}

    async def travel_to(self, moment: datetime) -> datetime:
        await self._use_this_loop()
        return await super().travel_to(moment)

    async def run_until(self, moment: datetime, *, raise_errors: bool = False) -> list[Job]:
        await self._use_this_loop()
        return await super().run_until(moment, raise_errors=raise_errors)

    async def run_due(self, *, raise_errors: bool = False, limit: int = 10_000) -> list[Job]:
        await self._use_this_loop()
        return await super().run_due(raise_errors=raise_errors, limit=limit)

    async def _use_this_loop(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise RotaError(
                "the fixture `rota` needs asyncio, and this test runs on something else: with anyio, "
                'let a fixture `anyio_backend` return "asyncio"'
            ) from None
        if loop not in self._of_loops:
            settings = self.app.settings
            database = Database(settings.database_url or "", settings, hot=True)
            await database.open()
            self._of_loops[loop] = database
        self._database = self._of_loops[loop]

    async def close_here(self) -> None:
        """Close the connections of this event loop: the sandbox's and the app's."""
        database = self._of_loops.pop(asyncio.get_running_loop(), None)
        if database is not None:
            await database.close()
        await self.app.close()

    def around(
        self, function: Callable[..., Coroutine[Any, Any, T]]
    ) -> Callable[..., Coroutine[Any, Any, T]]:
        """Return the function of a test with the closing of its connections after it."""

        @functools.wraps(function)
        async def call(*args: Any, **kwargs: Any) -> T:
            try:
                return await function(*args, **kwargs)
            finally:
                await self.close_here()

        return call
