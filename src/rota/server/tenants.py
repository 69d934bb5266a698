"""The app as one namespace sees it: all that `rota.App` can do, behind that namespace's wall."""

from __future__ import annotations

from collections import OrderedDict

from rota.app import App
from rota.operations.connection import Opened
from rota.server.calculation import compute_off_loop
from rota.store.row_security import Wall, WalledDatabase

_ROOM = 1_000


class Tenant(App):
    """An app whose every question goes through a wall. It is opened and closed with the server."""

    def __init__(self, outer: App, database: WalledDatabase) -> None:
        super().__init__(outer.settings.replace(namespace=database.namespace))
        self.tasks = outer.tasks
        self.database = database
        self._walled = Opened(database)
        self.schedules.compute = compute_off_loop

    async def _open(self) -> Opened:
        return self._walled

    async def close(self) -> None:
        pass


class Tenants:
    """Keeps those that were asked for lately: each gathers its submits."""

    def __init__(self, outer: App, wall: Wall) -> None:
        self._outer = outer
        self._wall = wall
        self._known: OrderedDict[str, Tenant] = OrderedDict()

    def get(self, namespace: str) -> Tenant:
        tenant = self._known.get(namespace)
        if tenant is None:
            tenant = self._known[namespace] = Tenant(self._outer, self._wall.behind(namespace))
            if len(self._known) > _ROOM:
                self._known.popitem(last=False)
        self._known.move_to_end(namespace)
        return tenant
