"""Operations on events: list and follow them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from rota.store.event_stream import EventStream
from rota.store.events import Event, EventStore

if TYPE_CHECKING:
    from rota.operations.rota import Rota


class Events:
    """`app.events`: failures, delays and other things that someone should look at."""

    def __init__(self, rota: Rota) -> None:
        self._rota = rota

    async def list(
        self, *, kind: str | None = None, since: datetime | None = None, limit: int = 100
    ) -> list[Event]:
        """List events, newest first.

        Kinds: ``failed``, ``dead_lettered``, ``timed_out``, ``slow``, ``slower``, ``late``,
        ``deadline_missed``, ``queue_lag``, ``missed``, ``overran``, ``set_aside``, ``node_dead``.
        """
        store = EventStore((await self._rota.store()).database)
        return await store.list(self._rota.namespace, kind, since, limit)

    async def stream(self) -> EventStream:
        """Return a reader that pages through events, or follows them as they happen."""
        return EventStream((await self._rota.store()).database)
