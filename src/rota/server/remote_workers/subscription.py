"""Receive hints for remote workers whose claims wait here.

Protocol. One connection of this server LISTENs on the channel of each worker that waits, and on its
namespace's; and holds the worker's advisory lock, by which senders of hints see that it is listening
(`rota.is_listening`). A subscription is opened for one waiting request, and closed with it; two
requests of a worker share what they need, and so do those that follow each other: the connection stops
to LISTEN ten seconds after a worker's last request. Another server that the worker has turned to
meanwhile LISTENs as well, and has the lock as soon as it is free: hints arrive in any case. When the
connection breaks, all waiting requests are woken, and subscribe again; without a connection (or behind
a pooler, where LISTEN is of no use) no hints arrive, and claims poll more often. Nothing here is needed
for correctness: a hint that is lost costs time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from time import monotonic
from typing import Any
from uuid import UUID

from rota.errors import StoreUnavailable
from rota.runtime.lanes import PendingHints, ServedQueues
from rota.runtime.listener import channel_of
from rota.store.database import Connection, Database
from rota.store.driver_errors import translated_errors

log = logging.getLogger("rota.server")

_LINGER = 10.0  # seconds after a worker's last request


class Subscription:
    """The hints for one waiting request. `pending`: those that only this worker was given."""

    def __init__(self, worker: UUID, namespace: str, served: ServedQueues) -> None:
        self.worker = worker
        self.namespace = namespace
        self.woken = asyncio.Event()
        self.signalled = False  # a job of this worker is to be stopped
        self.pending = PendingHints()
        self._served = served

    def receive(self, payload: str, to_us_alone: bool) -> None:
        first, _, rest = payload.partition(" ")
        if first == "signal":
            if rest == str(self.worker):
                self.signalled = True
                self.woken.set()
        elif first in self._served:
            with contextlib.suppress(ValueError):
                rank, count = (int(part) for part in rest.split(" "))
                if to_us_alone:
                    self.pending.add(first, rank, count)
                self.woken.set()

    def settle(self, lanes: Iterable[str]) -> None:
        """Count claimed jobs, given by their lanes."""
        for lane, claimed in Counter(lanes).items():
            self.pending.settle(lane, claimed)


class Subscriptions:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: Connection | None = None
        self._busy = asyncio.Lock()  # a connection does one thing at a time
        self._open: set[Subscription] = set()
        self._channels: dict[str, tuple[str, UUID | None]] = {}  # that the connection listens to
        self._locked: set[UUID] = set()
        # Workers without a request, in the order in which they are left: until when, and the namespace.
        self._left: dict[UUID, tuple[float, str]] = {}
        self._leaving: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        return len(self._open)

    def works(self, subscription: Subscription) -> bool:
        """Return whether hints for this worker arrive here."""
        connection = self._connection
        connected = connection is not None and not connection.is_closed()
        channel = self._channel(subscription.namespace, subscription.worker)
        return connected and channel in self._channels

    @contextlib.asynccontextmanager
    async def open(self, subscription: Subscription) -> AsyncIterator[None]:
        self._open.add(subscription)
        try:
            await self.listen(subscription)
            yield
        finally:
            self._open.discard(subscription)
            self._left.pop(subscription.worker, None)
            self._left[subscription.worker] = (monotonic() + _LINGER, subscription.namespace)
            if self._leaving is None or self._leaving.done():
                self._leaving = asyncio.create_task(self._leave())

    async def listen(self, subscription: Subscription) -> None:
        """Listen for its hints, unless it does already. If that fails, none arrive."""
        worker, namespace = subscription.worker, subscription.namespace
        if self._database.behind_pooler or (worker in self._locked and self.works(subscription)):
            return
        try:
            async with self._busy:
                connection = await self._connected()
                with translated_errors():
                    await self._listen(connection, namespace, None)
                    await self._listen(connection, namespace, worker)
                if worker not in self._locked:
                    [row] = await self._database.fetch_on(connection, "lock_listener", worker)
                    if row[0]:
                        self._locked.add(worker)
        except StoreUnavailable as error:
            log.warning("can't listen for hints of worker %s, polling instead: %s", worker, error)

    async def _connected(self) -> Connection:
        connection = self._connection
        if connection is None or connection.is_closed():
            self._channels.clear()
            self._locked.clear()
            connection = self._connection = await self._database.dedicated()
            connection.add_termination_listener(self._lost)
        return connection

    async def _listen(self, connection: Connection, namespace: str, worker: UUID | None) -> None:
        channel = self._channel(namespace, worker)
        if channel not in self._channels:
            await connection.add_listener(channel, self._notified)
            self._channels[channel] = (namespace, worker)

    async def _leave(self) -> None:
        """Stop listening for workers that have had no request for a while, until there are none."""
        while self._left:
            worker, (until, namespace) = next(iter(self._left.items()))
            if (seconds := until - monotonic()) > 0:
                await asyncio.sleep(seconds)
            elif self._left.pop(worker, None):
                await self._close(worker, namespace)

    async def _close(self, worker: UUID, namespace: str) -> None:
        """Stop listening to what no request needs."""
        with contextlib.suppress(StoreUnavailable):
            async with self._busy:
                connection = self._connection
                if connection is None or connection.is_closed():
                    return
                if not any(other.worker == worker for other in self._open):
                    await self._unlisten(connection, namespace, worker)
                    if worker in self._locked:
                        self._locked.discard(worker)
                        await self._database.fetch_on(connection, "unlock_listener", worker)
                if not any(other.namespace == namespace for other in self._open):
                    await self._unlisten(connection, namespace, None)

    def _channel(self, namespace: str, worker: UUID | None) -> str:
        return channel_of(self._database.schema, namespace, worker)

    async def _unlisten(self, connection: Connection, namespace: str, worker: UUID | None) -> None:
        channel = self._channel(namespace, worker)
        if self._channels.pop(channel, None) is not None:
            with translated_errors():
                await connection.remove_listener(channel, self._notified)

    def _notified(self, _connection: Any, _pid: int, channel: str, payload: str) -> None:
        namespace, worker = self._channels.get(channel, ("", None))
        for subscription in self._open:
            if subscription.namespace == namespace and worker in (None, subscription.worker):
                subscription.receive(payload, worker is not None)

    def _lost(self, connection: Any) -> None:
        if connection is self._connection:
            self._connection = None
            for subscription in self._open:
                subscription.woken.set()

    async def close(self) -> None:
        if self._leaving is not None:
            self._leaving.cancel()
            await asyncio.gather(self._leaving, return_exceptions=True)
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_closed():
            connection.terminate()
