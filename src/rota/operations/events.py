"""Operations on events: list and follow them."""

from __future__ import annotations

from datetime import datetime

from rota.operations.base import Operations
from rota.store.event_stream import EventStream
from rota.store.events import Event, EventStore


class Events(Operations):
    """`app.events`: failures, delays and other things that someone should look at."""

    async def list(
        self, *, kind: str | None = None, since: datetime | None = None, limit: int = 100
    ) -> list[Event]:
        """List events, newest first.

        Kinds: ``failed``, ``dead_lettered``, ``timed_out``, ``slow``, ``slower``, ``late``,
        ``deadline_missed``, ``queue_lag``, ``missed``, ``overran``, ``set_aside``, ``node_dead``.
        """
        return await EventStore(await self._database()).list(self._namespace, kind, since, limit)

    async def stream(self) -> EventStream:
        """Return a reader that pages through events, or follows them as they happen."""
        return EventStream(await self._database())
