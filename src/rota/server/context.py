"""What the server's routes work with: made when it starts, the same for all requests."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from litestar import Litestar

from rota.app import App
from rota.operations.installation import Installation
from rota.server.identity.oidc import OpenIDConnect
from rota.server.identity.passwords import Passwords
from rota.server.identity.sessions import Sessions
from rota.server.identity.tokens import Tokens
from rota.server.quotas import Quotas
from rota.server.remote_workers.desk import RemoteDesk
from rota.server.tenants import ServerConnections, Tenants
from rota.store.database import Database
from rota.store.identity import IdentityStore
from rota.store.quotas import QuotaStore
from rota.store.row_security import RowSecurity

log = logging.getLogger("rota.server")

_LEAST_CONNECTIONS = 8


class ServerContext:
    """`database` is for the server's own tables; what belongs to a namespace goes through `tenants`.

    `hot`: as `row_security`, for what workers over HTTP do to the queue.
    """

    def __init__(
        self, app: App, database: Database, row_security: RowSecurity, hot: RowSecurity
    ) -> None:
        self.app = app
        self.settings = app.settings
        self.database = database
        self.row_security = row_security
        self.quotas = Quotas(QuotaStore(database))
        self.tenants = Tenants(app.settings, app.tasks, row_security, self.quotas.admit)
        self.identity = IdentityStore(database)
        self.tokens = Tokens(self.identity)
        self.sessions = Sessions(self.identity, app.settings.session_hours * 3600)
        self.passwords = Passwords(self.identity)
        self.oidc = OpenIDConnect(app.settings, self.identity) if app.settings.oidc_issuer else None
        self.installation = Installation(
            ServerConnections(app.settings, database), self.forget_access
        )
        self.stopping = asyncio.Event()  # long answers end when it is set
        self.remote = RemoteDesk(app, hot, database, self.stopping)

    def forget_access(self) -> None:
        """Drop what was looked up about access and limits: it holds here at once, elsewhere soon."""
        self.tokens.memory.forget_all()
        self.sessions.memory.forget_all()
        self.quotas.forget()

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, app: App) -> AsyncIterator[ServerContext]:
        database = await app.connector.open_database()
        size = max(app.settings.pool_size, _LEAST_CONNECTIONS)
        lent = database.sibling(app.settings.replace(pool_size=size))
        hot = Database(database.url, lent.settings, hot=True)
        try:
            await lent.open()
            await hot.open()
            row_security = await RowSecurity.find(lent)
            if not row_security.enabled:
                log.warning(
                    "there is no row-level security behind the queries: the role rota_tenant could "
                    "not be made. Let a superuser run `create role rota_tenant nologin` and grant it "
                    "to the role that runs `rota migrate`, then `select %s.enable_row_security()`",
                    app.settings.schema,
                )
            context = cls(
                app, database, row_security, RowSecurity(hot, enabled=row_security.enabled)
            )
            yield context
            await context.remote.close()
        finally:
            await hot.close()
            await lent.close()
            await database.close()


def context_of(server: Litestar) -> ServerContext:
    context: ServerContext = server.state.context
    return context
