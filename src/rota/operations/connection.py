"""Connections to the database: opened at first use, one set per event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import AsyncIterator
from time import monotonic
from typing import Protocol, TypeAlias, TypeVar

from rota.config import Settings
from rota.core.administration import Diagnosis
from rota.core.checkup import Finding
from rota.errors import RotaError, StoreUnavailable
from rota.lib.sync_bridge import sync_bridge
from rota.operations.doctor import examine
from rota.operations.recovery import Recovery, recover, survey
from rota.store.database import Connection, Database
from rota.store.embedded import EmbeddedPostgres, open_embedded
from rota.store.encrypted import Encryption
from rota.store.jobs import JobStore
from rota.store.migrate import (
    Migrated,
    SchemaFit,
    check_schema,
    compare_schema,
    migrate,
    pending_names,
)
from rota.store.signatures import Signatures
from rota.store.submitter import Submitter

T = TypeVar("T")
PerLoop: TypeAlias = weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, T]


class Opened:
    """The connections of an event loop: they can't be shared between loops."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.store = JobStore(database)
        self.submitter = Submitter(self.store)
        self.signatures = Signatures(database)


class Connections(Protocol):
    """The source of connections for operations: a `Connector`, or the server's, behind row security."""

    settings: Settings
    encryption: Encryption  # for submits through callers' own connections

    async def opened(self) -> Opened: ...


def _leave_parent() -> None:
    for connector in _connectors:
        connector.leave_parent()


class Connector:
    """Opens, shares, migrates and closes. Without a configured database it starts the embedded one."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._opened: PerLoop[Opened] = weakref.WeakKeyDictionary()
        self._opening: PerLoop[asyncio.Lock] = weakref.WeakKeyDictionary()
        self.encryption = Encryption(settings)  # for submits through callers' own connections
        self._embedded: EmbeddedPostgres | None = None
        self._embedded_lock = threading.Lock()
        _connectors.add(self)

    def leave_parent(self) -> None:
        """In a forked child: another thread of the parent may have held the lock."""
        self._embedded_lock = threading.Lock()

    async def database_url(self) -> str:
        """Return the database's URL. Starts the embedded PostgreSQL when none is configured."""
        if self.settings.database_url:
            return self.settings.database_url
        return (await asyncio.to_thread(self._start_embedded)).url

    def _start_embedded(self) -> EmbeddedPostgres:
        with self._embedded_lock:
            if self._embedded is None:
                self._embedded = open_embedded(self.settings.data_dir)
            return self._embedded

    async def open_database(self, *, hot: bool = False) -> Database:
        """Open a database for the caller alone, and check its schema. The embedded one is migrated."""
        database = Database(await self.database_url(), self.settings, hot=hot)
        await database.open()
        try:
            async with database.connection() as connection:
                if not self.settings.database_url:
                    await self._migrate_on(connection)
                await check_schema(connection, self.settings.schema)
        except BaseException:
            await database.close()
            raise
        return database

    async def opened(self) -> Opened:
        """Return the connections of this event loop, which are opened the first time."""
        loop = asyncio.get_running_loop()
        opened = self._opened.get(loop)
        if opened is None:
            async with self._opening.setdefault(loop, asyncio.Lock()):
                opened = self._opened.get(loop)
                if opened is None:
                    opened = self._opened[loop] = Opened(await self.open_database())
        return opened

    @contextlib.asynccontextmanager
    async def _unchecked(self) -> AsyncIterator[Connection]:
        """Connect to a database whose schema may be missing or old."""
        database = Database(await self.database_url(), self.settings)
        await database.open()
        try:
            async with database.connection() as connection:
                yield connection
        finally:
            await database.close()

    async def migrate(self, *, include_post: bool = False) -> Migrated:
        """Migrate the database's schema to this code, and return the files that were applied."""
        async with self._unchecked() as connection:
            done = await self._migrate_on(connection, include_post=include_post)
            # Plain SQL is held to the same limit as Python.
            await connection.execute(
                f"update {self.settings.schema}.setting set value = $1"  # noqa: S608
                " where name = 'max_payload_bytes'",
                self.settings.max_payload_bytes,
            )
            return done

    async def pending_migrations(self, *, include_post: bool = False) -> list[str]:
        """Return the migrations that `migrate` would apply; without any, check the schema."""
        async with self._unchecked() as connection:
            schema = self.settings.schema
            pending = await pending_names(connection, schema, include_post=include_post)
            if not pending:
                await check_schema(connection, schema)
            return pending

    async def schema_fit(self, *, wait: float = 0) -> SchemaFit:
        """Compare the schema of the database with this release. Changes nothing.

        `wait`: for this many seconds, ask again while it doesn't fit or the database doesn't answer.
        """
        end = monotonic() + wait
        while True:
            try:
                async with self._unchecked() as connection:
                    fit = await compare_schema(connection, self.settings.schema)
            except StoreUnavailable:
                if monotonic() >= end:
                    raise
            else:
                if fit.fits or monotonic() >= end:
                    return fit
            await asyncio.sleep(min(1.0, max(0.0, end - monotonic())))

    async def diagnose(self) -> Diagnosis:
        """Examine the database and the installation in it. What fails is a finding, and no error."""
        try:
            database = Database(await self.database_url(), self.settings)
            await database.open()
        except RotaError as error:
            return Diagnosis(False, [Finding("database", "problem", str(error))])
        try:
            return await examine(database, self.settings)
        finally:
            await database.close()

    async def recover(self, *, dry_run: bool = False, pause: bool = True) -> Recovery:
        """Adopt a restored or copied database, or say what would run on it."""
        database = (await self.opened()).database
        if dry_run:
            return await survey(database)
        return await recover(database, self.settings, pause=pause)

    async def _migrate_on(self, connection: Connection, *, include_post: bool = False) -> Migrated:
        settings = self.settings
        return await migrate(
            connection, settings.schema, include_post=include_post, shards=settings.shards,
            namespace=settings.namespace,
        )  # fmt: skip

    async def close(self) -> None:
        """Close this event loop's connections and those of synchronous callers, and leave the
        embedded PostgreSQL."""
        for loop in (asyncio.get_running_loop(), sync_bridge.loop):
            if loop is not None and (opened := self._opened.pop(loop, None)) is not None:
                await sync_bridge.run_on(loop, opened.database.close())
        if not self._opened:
            await asyncio.to_thread(self._leave_embedded)

    def _leave_embedded(self) -> None:
        with self._embedded_lock:
            embedded, self._embedded = self._embedded, None
            if embedded is not None:
                embedded.close()

    @contextlib.asynccontextmanager
    async def using(self, settings: Settings) -> AsyncIterator[None]:
        """Use another database or schema for a while. See `App.using`."""
        before = self.settings
        await self.close()
        self.settings, self.encryption = settings, Encryption(settings)
        try:
            yield
        finally:
            await self.close()
            self.settings, self.encryption = before, Encryption(before)


_connectors: weakref.WeakSet[Connector] = weakref.WeakSet()
os.register_at_fork(after_in_child=_leave_parent)
