"""What the server does now and then: write when tokens were last used, take away what is over.

Every server does it, and they don't get into each other's way. Dying here loses a minute of last uses.
"""

from __future__ import annotations

from rota.runtime.ticker import Service
from rota.server.context import ServerContext
from rota.store.endpoints import EndpointStore

_SAVE = 30.0
_SWEEP_EVERY = 120  # ticks: once an hour


class ServerUpkeep(Service):
    """A service: see `rota.runtime.ticker`."""

    name = "server upkeep"

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._ticks = 0

    async def tick(self) -> float:
        await self._context.tokens.save_uses()
        if self._ticks % _SWEEP_EVERY == 0:
            settings = self._context.settings
            await self._context.identity.sweep(settings.audit_days)
            await EndpointStore(self._context.database).forget_callbacks(settings.retention_days)
        self._ticks += 1
        return _SAVE
