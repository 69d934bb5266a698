"""Operations on events: list them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from rota.store.events import Event, EventStore

if TYPE_CHECKING:
    from rota.operations.rota import Rota


class Events:
    """`app.events`: what people should hear of."""

    def __init__(self, rota: Rota) -> None:
        self._rota = rota

    async def list(
        self, *, kind: str | None = None, since: datetime | None = None, limit: int = 100
    ) -> list[Event]:
        """The newest first. Kinds: ``failed``, ``dead_lettered``, ``timed_out``, ``slow``, ``slower``,
        ``late``, ``deadline_missed``, ``queue_lag``, ``missed``, ``overran``, ``set_aside``,
        ``node_dead``."""
        store = EventStore((await self._rota.store()).database)
        return await store.list(self._rota.namespace, kind, since, limit)
