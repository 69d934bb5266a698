"""Keeps a node alive in the eyes of the cluster, from a thread and a connection of its own.

Protocol. A node registers under a new id, then says so every `heartbeat` seconds; the database's
clock says until when it is believed. What the node itself believes ends earlier: it counts from
before the request, on its monotonic clock, so that a slow reply or a long sleep shortens its trust
and never stretches it. No row back from a heartbeat: it was declared dead. Then everything it holds
belongs to others; it stops its handlers, throws this identity away and registers anew.

User code can block the event loop, but not this thread: it goes on with the heartbeats, notices that
the loop doesn't answer, and says who blocks it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol
from uuid import UUID

import msgspec

from rota.config import Settings
from rota.entropy import new_id
from rota.errors import StoreUnavailable
from rota.services.clock import DatabaseClock
from rota.services.watchdog import Watchdog
from rota.store.database import Connection, Database, translated_errors

log = logging.getLogger("rota.keeper")


class NodeProfile(msgspec.Struct, frozen=True):
    """What a node says of itself when it registers."""

    namespace: str
    name: str
    host: str
    pid: int
    version: str
    roles: tuple[str, ...]
    queues: tuple[str, ...]
    capabilities: tuple[str, ...]
    tasks: tuple[str, ...]
    slots: int


class KeptNode(Protocol):
    """What the keeper needs to know of, and tell, the node it keeps. Called on the node's loop."""

    def count_running(self) -> int: ...

    def is_draining(self) -> bool: ...

    def take_signals(self, signals: list[tuple[UUID, int, str]]) -> None: ...

    def declared_dead(self) -> None: ...


class Keeper:
    def __init__(self, database: Database, settings: Settings, kept: KeptNode) -> None:
        self._database = database
        self._settings = settings
        self._kept = kept
        self.node_id: UUID = new_id()
        self.clock = DatabaseClock()
        self.trusted_until = 0.0  # monotonic
        self._home = asyncio.get_running_loop()
        self._watchdog = Watchdog(self._home)
        self._stop = threading.Event()
        self._first: asyncio.Future[None] = self._home.create_future()
        self._thread = threading.Thread(target=self._live, name="rota-keeper", daemon=True)
        self._ended = asyncio.Event()

    @property
    def trusted(self) -> bool:
        """Whether this node may still start jobs."""
        return time.monotonic() < self.trusted_until

    async def start(self, profile: NodeProfile) -> None:
        """Returns when the node is registered; raises when that failed."""
        self._profile = profile
        self._thread.start()
        await self._first

    async def stop(self) -> None:
        self._stop.set()
        if self._thread.ident is None:
            return  # something failed before it was started
        await self._ended.wait()
        await asyncio.to_thread(self._thread.join)

    # -- on the keeper's own thread

    def _live(self) -> None:
        try:
            asyncio.run(self._keep())
        finally:
            self._tell(self._ended.set)

    async def _keep(self) -> None:
        connection: Connection | None = None
        registered = False
        pause = 0.0
        while not self._stop.is_set():
            await self._rest(pause)
            if self._stop.is_set():
                break
            try:
                if connection is None or connection.is_closed():
                    connection = await self._database.dedicated()
                if not registered:
                    await self._register(connection)
                    registered = True
                    self._tell(self._report_first, None)
                registered = await self._beat(connection)
                pause = self._settings.heartbeat if registered else 0.0
            except Exception as error:  # noqa: BLE001 - reported, and tried again
                self._recover(connection, error)
                connection = None
                pause = min(1.0, self._settings.heartbeat / 5)
        await self._leave(connection, registered)

    async def _rest(self, seconds: float) -> None:
        """Until the next heartbeat, looking after the loop meanwhile."""
        end = time.monotonic() + seconds
        while not self._stop.is_set() and (left := end - time.monotonic()) > 0:
            self._watchdog.look()
            await asyncio.sleep(min(left, 0.1))

    async def _register(self, connection: Connection) -> None:
        profile = self._profile
        sent = time.monotonic()
        with translated_errors(self._database.url):
            await connection.execute(
                self._database.queries["register_node"],
                self.node_id, profile.namespace, profile.name, profile.host, profile.pid,
                profile.version, profile.roles, self._settings.lease_seconds, profile.queues,
                profile.capabilities, profile.tasks, profile.slots,
            )  # fmt: skip
        self._trust_from(sent)

    async def _beat(self, connection: Connection) -> bool:
        """Whether the cluster still believes in us."""
        queries, sent = self._database.queries, time.monotonic()
        with translated_errors(self._database.url):
            database_now = await connection.fetchval(
                queries["heartbeat"], self.node_id, self._settings.lease_seconds,
                self._kept.count_running(), self._kept.is_draining(),
            )  # fmt: skip
            received = time.monotonic()
            if database_now is None:
                self._die()
                return False
            self._trust_from(sent)
            self._tell(self.clock.observe, database_now, received)
            signals = await connection.fetch(queries["signals_for"], self.node_id)
        if signals:
            self._tell(self._kept.take_signals, [tuple(row) for row in signals])
        return True

    def _trust_from(self, sent: float) -> None:
        # Measured from before the request: a slow reply must not extend our trust.
        margin = min(1.0, self._settings.lease_seconds / 10)
        self.trusted_until = sent + self._settings.lease_seconds - margin

    def _die(self) -> None:
        log.error(
            "node %s was declared dead: it was not heard of for %.0f s. Its jobs were given to "
            "others; it stops them here and goes on under a new identity",
            self.node_id, self._settings.lease_seconds,
        )  # fmt: skip
        self.trusted_until = 0.0
        self.node_id = new_id()
        self._tell(self._kept.declared_dead)

    def _recover(self, connection: Connection | None, error: Exception) -> None:
        if not isinstance(error, StoreUnavailable):
            log.exception("heartbeat failed")
        elif self.trusted:
            log.warning("heartbeat failed, trying again: %s", error)
        self._tell(self._report_first, error)
        if connection is not None:
            connection.terminate()

    async def _leave(self, connection: Connection | None, registered: bool) -> None:
        if connection is None or connection.is_closed():
            return
        try:
            if registered:
                await connection.execute(self._database.queries["deregister_node"], self.node_id)
            await connection.close(timeout=2)
        except Exception:  # noqa: BLE001 - the lease runs out by itself
            connection.terminate()

    def _report_first(self, error: Exception | None) -> None:
        if not self._first.done():
            if error is None:
                self._first.set_result(None)
            else:
                self._first.set_exception(error)
                self._stop.set()

    def _tell(self, callback: Callable[..., Any], *arguments: Any) -> None:
        try:
            self._home.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            self._stop.set()  # the loop is gone, and so is the node
