"""One `Rota` per namespace, behind row security."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from rota.config import Settings
from rota.operations.connection import Opened
from rota.operations.rota import Rota
from rota.operations.submissions import Admit
from rota.server.calculation import compute_change, compute_read
from rota.store.database import Database
from rota.store.encrypted import Encryption
from rota.store.row_security import RowSecurity
from rota.task import Task

_ROOM = 1_000
_MOST_OCCURRENCES = 10_000  # that one request makes the server compute


class ServerConnections:
    """Connections of a database that is opened and closed with the server."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self.settings = settings
        self.encryption = Encryption(settings)
        self.database = database
        self._opened = Opened(database)

    async def opened(self) -> Opened:
        return self._opened


class Tenants:
    """Keeps those that were asked for lately: each gathers its submits."""

    def __init__(
        self,
        settings: Settings,
        tasks: Mapping[str, Task[..., Any]],
        row_security: RowSecurity,
        admit: Admit,
    ) -> None:
        self._settings = settings
        self._tasks = tasks
        self._row_security = row_security
        self._admit = admit
        self._known: OrderedDict[str, Rota] = OrderedDict()

    def get(self, namespace: str) -> Rota:
        rota = self._known.get(namespace)
        if rota is None:
            database = self._row_security.for_namespace(namespace)
            settings = self._settings.replace(namespace=namespace)
            rota = self._known[namespace] = Rota(ServerConnections(settings, database), self._tasks)
            rota.submissions.admit = self._admit
            rota.schedules.compute = compute_change
            rota.schedules.compute_read = compute_read
            rota.schedules.most_occurrences = _MOST_OCCURRENCES
            if len(self._known) > _ROOM:
                self._known.popitem(last=False)
        self._known.move_to_end(namespace)
        return rota
