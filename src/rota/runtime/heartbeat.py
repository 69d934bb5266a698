"""Renews a node's lease with heartbeats, from a connection of its own.

Protocol. A node registers under a new id, then sends a heartbeat about every `heartbeat` seconds; its
lease expires by the database's clock. The node's own trust in the lease ends earlier: it counts from
before the request, on its monotonic clock, so that a slow reply or a long sleep shortens its trust and
never extends it. No row back from a heartbeat: it was declared dead. Then everything it holds belongs
to others; it stops its handlers, throws this identity away and registers anew. The answer also brings
the node's signals, how many workers are of its kind, and whether its listener is connected.

User code can block the node's loop, but not the heartbeat's thread: the thread continues, notices
that the loop doesn't answer (see `watchdog`), and lets hints go to other nodes meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping
from time import monotonic
from typing import Any, Protocol
from uuid import UUID

import msgspec

from rota.config import Settings
from rota.errors import StoreUnavailable
from rota.lib.ids import new_id, unit
from rota.runtime.clock import DatabaseClock
from rota.runtime.watchdog import Watchdog
from rota.store.database import Connection, Database

log = logging.getLogger("rota.heartbeat")

_CHECK_EVERY = 0.1
_BLOCKED_AFTER = 0.5


class NodeProfile(msgspec.Struct, frozen=True):
    """The description of a node, stored when it registers."""

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
    heartbeat_timeouts: Mapping[str, float] = {}
    resources: Mapping[str, float] | None = None  # as the database compares them; None: no worker
    labels: tuple[str, ...] = ()
    release: str | None = None  # the hash of its tasks' signatures; None: it has no tasks


class LeasedWorker(Protocol):
    """The worker of the node whose lease is renewed. Called on the node's loop."""

    def count_running(self) -> int: ...

    def is_draining(self) -> bool: ...

    def take_wish(self, wish: str | None) -> None:
        """Start no more jobs if it is asked to drain or to stop, and go on when it isn't any more."""
        ...

    def take_signals(self, signals: list[tuple[UUID, int, str]]) -> None: ...

    def declared_dead(self) -> None: ...

    def idle_withdrawn(self) -> None:
        """Advertise again: hints went to other nodes because this node's loop was blocked."""
        ...

    def listener_lost(self) -> None:
        """Connect again: the database doesn't see the listener's connection."""
        ...


class HeartbeatThread:
    """Runs heartbeats on a thread with a loop of its own, and notices when the node's loop is silent."""

    def __init__(self) -> None:
        self.stopping = False
        self._home = asyncio.get_running_loop()
        self._watchdog = Watchdog(self._home)
        self._silent = False
        self._watching = False
        self._thread: threading.Thread | None = None
        self._ended = asyncio.Event()

    def begin(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._thread = threading.Thread(
            target=self._execute, args=[run], name="rota-heartbeat", daemon=True
        )
        self._thread.start()

    def _execute(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            asyncio.run(run())
        finally:
            self.call(self._ended.set)

    def call(self, callback: Callable[..., Any], *arguments: Any) -> None:
        """Call this on the node's loop, soon."""
        try:
            self._home.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            self.stopping = True  # the loop is gone, and so is the node

    def watch(self) -> None:
        """Notice from now on when the node's loop goes silent. Before, the node is starting."""
        self._watching = True

    async def rest(self, seconds: float) -> bool:
        """Sleep, unless asked to stop. Return False, and early, if the node's loop was just blocked."""
        end = monotonic() + seconds
        while not self.stopping and (left := end - monotonic()) > 0:
            if self._watching:
                self._watchdog.check()
                was_silent, self._silent = self._silent, self._watchdog.silence() >= _BLOCKED_AFTER
                if self._silent and not was_silent:
                    return False
            await asyncio.sleep(min(left, _CHECK_EVERY))
        return True

    async def stop(self) -> None:
        """Ask the heartbeat to end, and wait until it has."""
        self.stopping = True
        if self._thread is not None:
            await self._ended.wait()
            await asyncio.to_thread(self._thread.join)


class Lease:
    """A node's identity, and how long the node may trust that nobody has declared it dead."""

    def __init__(self) -> None:
        self.node_id: UUID = new_id()
        self.clock = DatabaseClock()
        self.trusted_until = 0.0  # monotonic
        # Whether a queue of the namespace may keep less than all of its history.
        self.sparing = True
        self.peers = 1  # live workers of this node's kind with itself, counted up to a few hundred

    @property
    def trusted(self) -> bool:
        """True while this node may start jobs."""
        return monotonic() < self.trusted_until


class Heartbeat(Lease):
    def __init__(self, database: Database, settings: Settings) -> None:
        super().__init__()
        self._database = database
        self._settings = settings
        self.worker: LeasedWorker | None = None
        self.on_stop: Callable[[], None] = lambda: None  # called when somebody has asked it to stop
        self.tried_at = monotonic()  # when it last began a heartbeat
        self.registered = False
        self._host = HeartbeatThread()
        self._profile: NodeProfile | None = None
        self._noted_keys: list[str] = []  # names of encryption keys, as the node's row has them
        self._silent_since: float | None = None  # monotonic: since when no heartbeat got through
        self._first: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def start(self, profile: NodeProfile) -> None:
        """Register the node. Raises when that failed."""
        self._profile = profile
        self._host.begin(self._run)
        await self._first

    def watch(self) -> None:
        """Report from now on what blocks the node's loop."""
        self._host.watch()

    def know_tasks(self, names: tuple[str, ...]) -> None:
        """Remember the names of its tasks, for when the node registers again."""
        if self._profile is not None:
            self._profile = msgspec.structs.replace(self._profile, tasks=names)

    async def stop(self) -> None:
        await self._host.stop()

    # -- maybe on another thread's loop

    async def _run(self) -> None:
        connection: Connection | None = None
        registered = False
        pause = 0.0
        while True:
            await self._rest(pause, connection)
            if self._host.stopping:
                break
            self.tried_at, self.registered = monotonic(), registered
            try:
                if connection is None or connection.is_closed():
                    connection = await self._database.dedicated()
                if not registered:
                    await self._register(connection)
                    self.registered = registered = True
                    self._host.call(self._report_first, None)
                self.registered = registered = await self._beat(connection)
                if registered and self._silent_since is not None:
                    silent = monotonic() - self._silent_since
                    log.info("heartbeats work again after %.1f s", silent)
                    self._silent_since = None
                # Jitter, so that a thousand nodes that were started together don't stay together.
                pause = self._settings.heartbeat * (0.9 + unit() / 5) if registered else 0.0
            except Exception as error:  # noqa: BLE001 - reported, and tried again
                self._recover(connection, error)
                connection = None
                pause = min(1.0, self._settings.heartbeat / 5) * (0.5 + unit())
        await self._leave(connection, registered)

    async def _rest(self, seconds: float, connection: Connection | None) -> None:
        """Wait for the next heartbeat. While the loop is blocked, hints go to other nodes."""
        end = monotonic() + seconds
        while not await self._host.rest(end - monotonic()):
            if connection is not None and not connection.is_closed():
                with contextlib.suppress(Exception):  # the next heartbeat deals with it
                    await self._database.fetch_on(connection, "withdraw_idle", self.node_id)
            if self.worker is not None:
                self._host.call(self.worker.idle_withdrawn)

    async def _register(self, connection: Connection) -> None:
        profile = self._profile
        assert profile is not None
        sent = monotonic()
        await self._database.fetch_on(
            connection, "register_node",
            self.node_id, profile.namespace, profile.name, profile.host, profile.pid,
            profile.version, profile.roles, self._settings.lease_seconds, profile.queues,
            profile.capabilities, profile.tasks, profile.slots,
        )  # fmt: skip
        if profile.heartbeat_timeouts:
            timeouts = msgspec.json.encode(profile.heartbeat_timeouts).decode()
            await self._database.fetch_on(
                connection, "note_heartbeat_timeouts", self.node_id, timeouts
            )
        if profile.resources is not None:
            resources = msgspec.json.encode(profile.resources).decode()
            await self._database.fetch_on(
                connection, "note_resources", self.node_id, resources, profile.labels
            )
        if profile.release is not None:
            await self._database.fetch_on(connection, "note_release", self.node_id, profile.release)
        self._noted_keys = []
        await self._note_keys(connection)
        self._trust_from(sent)

    async def _note_keys(self, connection: Connection) -> None:
        """Note which encryption keys are here, if that has changed: their file may be replaced."""
        ring = self._database.encryption.ring
        names = ring.names if ring is not None else []
        if names != self._noted_keys:
            await self._database.fetch_on(connection, "note_keys", self.node_id, names)
            self._noted_keys = names

    async def _beat(self, connection: Connection) -> bool:
        """Send a heartbeat. Return whether the node still has its lease."""
        worker = self.worker
        load = (worker.count_running(), worker.is_draining()) if worker else (0, False)
        sent = monotonic()
        rows = await self._database.fetch_on(
            connection, "heartbeat", self.node_id, self._settings.lease_seconds, *load
        )
        received = monotonic()
        if not rows:
            self._die()
            return False
        self._trust_from(sent)
        await self._note_keys(connection)
        self._host.call(self._take_answer, rows, sent, received)
        return True

    def _trust_from(self, sent: float) -> None:
        # Measured from before the request: a slow reply must not extend our trust.
        margin = min(1.0, self._settings.lease_seconds / 10)
        self.trusted_until = sent + self._settings.lease_seconds - margin

    def _die(self) -> None:
        log.error(
            "node %s was declared dead: no heartbeat arrived for %.0f s. Its jobs were given to "
            "others; it stops them and registers under a new identity",
            self.node_id, self._settings.lease_seconds,
        )  # fmt: skip
        self.trusted_until = 0.0
        self.node_id = new_id()
        if self.worker is not None:
            self._host.call(self.worker.declared_dead)

    def _recover(self, connection: Connection | None, error: Exception) -> None:
        if self._silent_since is None:
            self._silent_since = monotonic()
        if not isinstance(error, StoreUnavailable):
            log.exception("heartbeat failed")
        elif self.trusted:
            log.warning("heartbeat failed, trying again: %s", error)
        self._host.call(self._report_first, error)
        if connection is not None:
            connection.terminate()

    async def _leave(self, connection: Connection | None, registered: bool) -> None:
        if connection is None or connection.is_closed():
            return
        try:
            if registered:
                await self._database.fetch_on(connection, "deregister_node", self.node_id)
            await connection.close(timeout=2)
        except Exception:  # noqa: BLE001 - the lease runs out by itself
            connection.terminate()

    # -- on the node's loop

    def _take_answer(self, rows: list[Any], sent: float, received: float) -> None:
        """Take in the answer to a heartbeat: one row for each signal, or one without."""
        self.clock.observe(rows[0]["now"], sent, received)
        self.peers = max(rows[0]["peers"], 1)
        self.sparing = rows[0]["sparing"]
        if rows[0]["wish"] == "stop":
            self.on_stop()
        if self.worker is None:
            return
        self.worker.take_wish(rows[0]["wish"])
        if not rows[0]["listening"]:
            self.worker.listener_lost()
        signals = [(r["job_id"], r["token"], r["signal"]) for r in rows if r["job_id"] is not None]
        if signals:
            self.worker.take_signals(signals)

    def _report_first(self, error: Exception | None) -> None:
        if not self._first.done():
            if error is None:
                self._first.set_result(None)
            else:
                self._first.set_exception(error)
                self._host.stopping = True
