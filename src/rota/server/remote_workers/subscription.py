"""Hears hints on behalf of workers over HTTP whose claims wait here.

Protocol. One connection of this server LISTENs on the channel of each worker that waits, and on its
namespace's; and holds the worker's advisory lock, by which a hint knows that somebody hears
(`rota.hears`). An ear is opened for one waiting request, and closed with it; two requests of a worker
share what they need. When the line breaks, everybody who waits is woken, and opens his ear again;
without a line (or behind a pooler, where LISTEN is of no use) ears are deaf, and claims look more often.
Nothing here is needed for correctness: a hint that is lost costs time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from typing import Any
from uuid import UUID

from rota.errors import StoreUnavailable
from rota.runtime.listener import channel_of
from rota.runtime.served_queues import ServedQueues
from rota.store.database import Connection, Database, translated_errors

log = logging.getLogger("rota.server")


class Ear:
    """Of one request. `owed`: what it alone was told of; by lane, the lowest rank and how much."""

    def __init__(self, worker: UUID, namespace: str, serves: ServedQueues) -> None:
        self.worker = worker
        self.namespace = namespace
        self.woken = asyncio.Event()
        self.signalled = False  # that a job of this worker is to be stopped
        self.owed: dict[str, tuple[int, int]] = {}
        self._served = serves

    def hear(self, payload: str, to_us_alone: bool) -> None:
        first, _, rest = payload.partition(" ")
        if first == "signal":
            if rest == str(self.worker):
                self.signalled = True
                self.woken.set()
        elif first in self._served:
            with contextlib.suppress(ValueError):
                rank, count = (int(part) for part in rest.split(" "))
                if to_us_alone:
                    lowest, so_far = self.owed.get(first, (rank, 0))
                    self.owed[first] = (min(lowest, rank), so_far + count)
                self.woken.set()

    def settle(self, lanes: Iterable[str]) -> None:
        """Jobs of these lanes were claimed."""
        for lane, found in Counter(lanes).items():
            if lane in self.owed:
                rank, count = self.owed[lane]
                if count > found:
                    self.owed[lane] = (rank, count - found)
                else:
                    del self.owed[lane]


class Ears:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: Connection | None = None
        self._busy = asyncio.Lock()  # a connection does one thing at a time
        self._open: set[Ear] = set()
        self._channels: dict[str, tuple[str, UUID | None]] = {}  # what the connection listens to
        self._locked: set[UUID] = set()

    @property
    def waiting(self) -> int:
        return len(self._open)

    def hears(self, ear: Ear) -> bool:
        """Whether hints for this worker come here."""
        line = self._connection
        return line is not None and not line.is_closed() and ear.worker in self._locked

    @contextlib.asynccontextmanager
    async def open(self, ear: Ear) -> AsyncIterator[None]:
        self._open.add(ear)
        try:
            await self.tune(ear)
            yield
        finally:
            self._open.discard(ear)
            # Whatever becomes of the request: what it listened to is not forgotten.
            await asyncio.shield(self._close(ear))

    async def tune(self, ear: Ear) -> None:
        """Listen for it, unless that is so already. When it can't be done the ear stays deaf."""
        if self._database.behind_pooler or self.hears(ear):
            return
        try:
            async with self._busy:
                line = await self._line()
                with translated_errors(self._database.url):
                    await self._listen(line, ear.namespace, None)
                    await self._listen(line, ear.namespace, ear.worker)
                if ear.worker not in self._locked:
                    await self._database.fetch_on(line, "lock_ear", ear.worker)
                    self._locked.add(ear.worker)
        except StoreUnavailable as error:
            log.warning("can't listen for a worker's hints, and look more often instead: %s", error)

    async def _line(self) -> Connection:
        line = self._connection
        if line is None or line.is_closed():
            self._channels.clear()
            self._locked.clear()
            line = self._connection = await self._database.dedicated()
            line.add_termination_listener(self._lost)
        return line

    async def _listen(self, line: Connection, namespace: str, worker: UUID | None) -> None:
        channel = channel_of(self._database.schema, namespace, worker)
        if channel not in self._channels:
            await line.add_listener(channel, self._notified)
            self._channels[channel] = (namespace, worker)

    async def _close(self, ear: Ear) -> None:
        """What nobody else needs."""
        with contextlib.suppress(StoreUnavailable):
            async with self._busy:
                line = self._connection
                if line is None or line.is_closed():
                    return
                if not any(other.worker == ear.worker for other in self._open):
                    await self._unlisten(line, ear.namespace, ear.worker)
                    if ear.worker in self._locked:
                        self._locked.discard(ear.worker)
                        await self._database.fetch_on(line, "unlock_ear", ear.worker)
                if not any(other.namespace == ear.namespace for other in self._open):
                    await self._unlisten(line, ear.namespace, None)

    async def _unlisten(self, line: Connection, namespace: str, worker: UUID | None) -> None:
        channel = channel_of(self._database.schema, namespace, worker)
        if self._channels.pop(channel, None) is not None:
            with translated_errors(self._database.url):
                await line.remove_listener(channel, self._notified)

    def _notified(self, _line: Any, _pid: int, channel: str, payload: str) -> None:
        namespace, worker = self._channels.get(channel, ("", None))
        for ear in self._open:
            if ear.namespace == namespace and worker in (None, ear.worker):
                ear.hear(payload, worker is not None)

    def _lost(self, line: Any) -> None:
        if line is self._connection:
            self._connection = None
            for ear in self._open:
                ear.woken.set()

    async def close(self) -> None:
        line, self._connection = self._connection, None
        if line is not None and not line.is_closed():
            line.terminate()
