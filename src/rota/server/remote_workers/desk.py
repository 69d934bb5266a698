"""Gives the server's routes what they need for workers over HTTP, by namespace."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from rota.app import App
from rota.server.remote_workers.claims import Claims
from rota.server.remote_workers.subscription import Subscriptions
from rota.server.remote_workers.workers import RemoteWorkers
from rota.store.database import Database
from rota.store.remote import RemoteStore
from rota.store.row_security import RowSecurity

_ROOM = 1_000


class RemoteDesk:
    """`row_security` lends connections with pinned plans to one namespace at a time."""

    def __init__(
        self, app: App, row_security: RowSecurity, database: Database, stopping: asyncio.Event
    ) -> None:
        self._app = app
        self._row_security = row_security
        self._database = database
        self._subscriptions = Subscriptions(database)
        self.claims = Claims(self._subscriptions, app.settings, stopping)
        self._known: OrderedDict[str, RemoteWorkers] = OrderedDict()

    def workers(self, namespace: str) -> RemoteWorkers:
        workers = self._known.get(namespace)
        if workers is None:
            store = RemoteStore(self._row_security.for_namespace(namespace), namespace)
            workers = RemoteWorkers(store, self._app.tasks, self._app.settings, self._database)
            self._known[namespace] = workers
            if len(self._known) > _ROOM:
                self._known.popitem(last=False)
        self._known.move_to_end(namespace)
        return workers

    async def close(self) -> None:
        await self._subscriptions.close()
