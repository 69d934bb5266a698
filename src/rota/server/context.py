"""The state of a running server, which all requests share."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from functools import lru_cache

from litestar import Litestar

from rota.app import App
from rota.config import Settings
from rota.operations.connection import Opened
from rota.operations.installation import Installation
from rota.operations.rota import Rota
from rota.runtime.ticker import Service, Ticker
from rota.server.calculation import compute_change, compute_read
from rota.server.identity.credentials import Sessions, Tokens
from rota.server.identity.oidc import OpenIDConnect
from rota.server.identity.passwords import Passwords
from rota.server.quotas import Quotas
from rota.server.reading import Reading, ReplicaWatch
from rota.server.remote_workers.claims import Claims
from rota.server.remote_workers.subscription import Subscriptions
from rota.server.remote_workers.workers import RemoteWorkers
from rota.store.database import Database
from rota.store.encrypted import Encryption
from rota.store.endpoints import EndpointStore
from rota.store.identity import IdentityStore
from rota.store.quotas import QuotaStore
from rota.store.remote import RemoteStore
from rota.store.replica import ReadingDatabase, ReadReplica
from rota.store.row_security import RowSecurity

log = logging.getLogger("rota.server")

_LEAST_CONNECTIONS = 8
_MOST_NAMESPACES = 1_000  # whose objects are kept
_MOST_OCCURRENCES = 10_000  # that one request makes the server compute
_SAVE_SECONDS = 30.0
_SWEEP_TICKS = 120  # once an hour


class ServerConnections:
    """Connections of a database that is opened and closed with the server."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self.settings = settings
        self.encryption = Encryption(settings)
        self.database = database
        self._opened = Opened(database)

    async def opened(self) -> Opened:
        return self._opened


class ServerContext:
    """The objects that routes work with.

    `tenant` gives access to what belongs to a namespace, restricted by row security; `database` is for
    the server's own tables. `hot` has connections with pinned plans, for the jobs of remote workers.
    """

    def __init__(
        self, app: App, database: Database, row_security: RowSecurity, hot: RowSecurity
    ) -> None:
        self.app = app
        self.settings = app.settings
        self.database = database
        self.row_security = row_security
        self._hot = hot
        self.quotas = Quotas(QuotaStore(database))
        self.identity = IdentityStore(database)
        self.tokens = Tokens(self.identity)
        self.sessions = Sessions(self.identity)
        self.passwords = Passwords(self.identity)
        self.installation = Installation(
            ServerConnections(app.settings, database), self.forget_access
        )
        self.oidc = (
            OpenIDConnect(app.settings, self.identity, self.installation.users)
            if app.settings.oidc_issuer
            else None
        )
        self.stopping = asyncio.Event()  # streams and waiting claims end when it is set
        self.subscriptions = Subscriptions(database)
        self.claims = Claims(self.subscriptions, app.settings, self.stopping)
        self.tenant = lru_cache(_MOST_NAMESPACES)(self._make_tenant)
        self.remote_workers = lru_cache(_MOST_NAMESPACES)(self._make_remote_workers)
        self.replica: ReadReplica | None = None
        self.reader = lru_cache(_MOST_NAMESPACES)(self._make_reader)
        self.reading: Reading | None = None  # with a replica

    def _make_tenant(self, namespace: str) -> Rota:
        database = self.row_security.for_namespace(namespace)
        settings = self.settings.replace(namespace=namespace)
        rota = Rota(ServerConnections(settings, database), self.app.tasks)
        rota.submissions.admit = self.quotas.admit
        rota.schedules.compute = compute_change
        rota.schedules.compute_read = compute_read
        rota.schedules.most_occurrences = _MOST_OCCURRENCES
        return rota

    def _make_reader(self, namespace: str) -> Rota:
        """Make the operations that read from the replica; for requests that change nothing."""
        assert self.replica is not None
        primary = self.row_security.for_namespace(namespace)
        database = ReadingDatabase(self.replica, self._replica_security, namespace, primary)
        rota = Rota(
            ServerConnections(self.settings.replace(namespace=namespace), database), self.app.tasks
        )
        rota.schedules.compute_read = compute_read
        rota.schedules.most_occurrences = _MOST_OCCURRENCES
        return rota

    def read_from(self, replica: ReadReplica) -> None:
        self.replica, self.reading = replica, Reading(self)
        # One for all namespaces: it remembers to whom each connection was lent last.
        self._replica_security = RowSecurity(replica.database, enabled=self.row_security.enabled)

    def _make_remote_workers(self, namespace: str) -> RemoteWorkers:
        store = RemoteStore(self._hot.for_namespace(namespace), namespace)
        return RemoteWorkers(store, self.app.tasks, self.settings, self.database)

    def forget_access(self) -> None:
        """Drop cached access and limits after a change. Other servers' caches expire within seconds."""
        self.tokens.cache.clear()
        self.sessions.cache.clear()
        self.quotas.forget()

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, app: App) -> AsyncIterator[ServerContext]:
        database = await app.connector.open_database()
        size = max(app.settings.pool_size, _LEAST_CONNECTIONS)
        shared = database.sibling(app.settings.replace(pool_size=size))
        hot = Database(database.url, shared.settings, hot=True)
        try:
            await shared.open()
            await hot.open()
            row_security = await RowSecurity.find(shared)
            if not row_security.enabled:
                log.warning(
                    "row-level security is not enabled, because the role rota_tenant could not be "
                    "created. Let a superuser run `create role rota_tenant nologin` and grant it to "
                    "the role that runs `rota migrate`, then `select %s.enable_row_security()`",
                    app.settings.schema,
                )
            context = cls(
                app, database, row_security, RowSecurity(hot, enabled=row_security.enabled)
            )
            if context.oidc is not None:
                await context.installation.roles.check_mapped()
            async with _reading_replica(context, shared):
                yield context
            await context.subscriptions.close()
        finally:
            await hot.close()
            await shared.close()
            await database.close()


@contextlib.asynccontextmanager
async def _reading_replica(context: ServerContext, primary: Database) -> AsyncIterator[None]:
    """Follow the replica of `read_url`, if there is one, for as long as the server runs."""
    if context.settings.read_url is None:
        yield
        return
    replica = ReadReplica(primary, primary.settings)
    context.read_from(replica)
    ticker = Ticker(ReplicaWatch(replica))
    ticker.start()
    try:
        yield
    finally:
        await ticker.stop()
        await replica.close()


def context_of(server: Litestar) -> ServerContext:
    context: ServerContext = server.state.context
    return context


class ServerUpkeep(Service):
    """A service that saves when tokens were last used and deletes what has
    expired. Every server runs it; they don't conflict. A crash loses a minute of last uses."""

    name = "server upkeep"

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._ticks = 0

    async def tick(self) -> float:
        await self._context.tokens.save_uses()
        if self._ticks % _SWEEP_TICKS == 0:
            settings = self._context.settings
            await self._context.identity.sweep(settings.audit_days)
            await EndpointStore(self._context.database).forget_callbacks(settings.retention_days)
        self._ticks += 1
        return _SAVE_SECONDS
