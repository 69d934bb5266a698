"""A node: one process of the cluster. The one place that wires roles together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from time import monotonic
from typing import Any, ClassVar, Literal, Protocol
from uuid import UUID

import rota
from rota.app import App
from rota.config import Settings, check_name
from rota.core.durations import format_duration
from rota.core.resources import check_label, to_json
from rota.errors import ConfigError, StoreUnavailable
from rota.lib.ids import unit
from rota.lib.installed import check_installation
from rota.observe import Metrics, MetricsPort, shared_metrics
from rota.observe.health import Report, check
from rota.operations.recovery import check_identity
from rota.runtime.advancer import Advancer
from rota.runtime.heartbeat import Heartbeat, NodeProfile
from rota.runtime.lanes import ServedQueues
from rota.runtime.machine import resources_of_node
from rota.runtime.stopping import Stoppable
from rota.runtime.ticker import Service, Ticker
from rota.scheduler.coordination import Coordination
from rota.scheduler.coordination.opening import open_coordination
from rota.scheduler.depths import Depths
from rota.scheduler.firer import Firer
from rota.scheduler.janitor import Janitor
from rota.scheduler.pools import Pools
from rota.scheduler.reaper import Overruns, Reaper
from rota.scheduler.releaser import Releaser
from rota.scheduler.shards import Shards
from rota.store.database import Database
from rota.store.schedules import ScheduleStore
from rota.store.work import UpkeepStore
from rota.task import heartbeat_timeouts
from rota.worker.role import WorkerRole
from rota.worker.scheduled_runs import enable_scheduled_runs
from rota.worker.webhook_delivery import enable_webhooks

log = logging.getLogger("rota.node")

Role = Literal["scheduler", "worker", "server", "relay"]
ROLES: tuple[Role, ...] = ("scheduler", "worker")  # the default
_ADVANCE_SECONDS = 0.25  # between looks for runs to advance
_LONGEST_WAIT = 10.0  # seconds between two attempts to start while the database is away
_KNOWN_ROLES: tuple[Role, ...] = (*ROLES, "server", "relay")


class ServerRole(Protocol):
    """The HTTP server, or a relay. Made by the caller: a node doesn't depend on how."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class Node(Stoppable):
    """Runs an app's jobs. `await node.run()` until a signal, or start() and stop() by hand.

    `run()` waits for a database that is away, as it would if that happened later; `start()` raises.

    Args:
        app: the application whose tasks it runs.
        roles: ``scheduler`` (releases, reaps, cleans up), ``worker``, or both.
        queues: the queues it serves; none named: all. As a mapping, with how many jobs of a queue
            it has at a time: ``{"heavy": 2, "default": None}``.
        capabilities: what its jobs may need (``gpu``).
        labels: what jobs may be near to (``model7``).
        resources: what it has for jobs that ask for it, as ``{"gpu": 2}``, beside the setting.
        coordination: who shares the shards out among schedulers; if not given, the setting
            `coordination` says, and PostgreSQL otherwise.
        server: what its role ``server`` is, `rota.server.serving.Server(app)`.
        relay: what its role ``relay`` is, `rota.server.dispatch.relay.Relay(app)`.
    """

    waits_for_database: ClassVar[bool] = True  # whether run() does, at its start

    def __init__(
        self,
        app: App,
        roles: Sequence[Role] = ROLES,
        queues: Sequence[str] | Mapping[str, int | None] = (),
        capabilities: Sequence[str] = (),
        coordination: Coordination | None = None,
        server: ServerRole | None = None,
        relay: ServerRole | None = None,
        labels: Sequence[str] = (),
        resources: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.app = app
        self.server = server
        self.relay = relay
        self._coordination = coordination
        self.roles = _checked_roles(roles, server, relay)
        self._served = ServedQueues(
            _checked_queues(queues), capabilities,
            resources_of_node(self.settings, resources) if "worker" in self.roles else {},
            [check_label(label) for label in labels],
        )  # fmt: skip
        for capability in capabilities:
            check_name("capability", capability)
        self._undo = contextlib.AsyncExitStack()  # what stop() has to do, last begun first
        self._heartbeat: Heartbeat | None = None
        self.worker_role: WorkerRole | None = None
        self.metrics_port: MetricsPort | None = None
        self._shards: Shards | None = None
        self._serving = False

    @property
    def settings(self) -> Settings:
        return self.app.settings

    @property
    def id(self) -> UUID | None:
        """Its identity: new at every start, and after it was declared dead."""
        return self._heartbeat.node_id if self._heartbeat else None

    # -- starting

    async def start(self) -> None:
        """Open the database, register, and begin. What had begun when it fails is undone."""
        check_installation()
        try:
            self.app.prepare()
            self._undo.push_async_callback(self.app.close)
            database = await self.app.connector.open_database(hot=True)
            self._undo.push_async_callback(database.close)
            await check_identity(database, self.settings)
            self._heartbeat = Heartbeat(database, self.settings)
            self._heartbeat.on_stop = self._stop_requested.set
            self._undo.push_async_callback(self._heartbeat.stop)
            if "worker" in self.roles:
                enable_webhooks(self.app)
                enable_scheduled_runs(self.app)
                self.worker_role = WorkerRole(self.app, database, self._heartbeat, self._served)
                self._undo.push_async_callback(self.worker_role.stop)
                await self.worker_role.prepare()
            await self._heartbeat.start(self._profile())
            await self._start_metrics()  # stopped after the drain, which probes can watch
            if self.worker_role is not None:
                self._undo.push_async_callback(self.worker_role.drain, self._stop_at_once)
            if "scheduler" in self.roles:
                await self._start_scheduler(UpkeepStore(database))
            if "server" in self.roles and self.server is not None:
                self._undo.push_async_callback(self.server.stop)
                await self.server.start()
                self._serving = True
            if "relay" in self.roles and self.relay is not None:
                self._undo.push_async_callback(self.relay.stop)
                await self.relay.start()
            # Our own start may block the loop for a moment. From here on a job that blocks it is
            # stopped: so no job begins before.
            self._heartbeat.watch()
            if self.worker_role is not None:
                self.worker_role.start()
                self._start_triggers(database)
                self._start_sinks(database)
        except BaseException:
            await self._undo.aclose()
            raise
        log.info("node %s is up: %s", self.id, ", ".join(self.roles))

    async def _start_scheduler(self, store: UpkeepStore) -> None:
        await self.app.workflows.declare()
        await self.app.schedules.declare()
        heartbeat = self._heartbeat
        assert heartbeat is not None
        shards = self._shards = Shards(
            await open_coordination(self.settings.coordination, store.database, self._coordination),
            await store.shards(),
            self.settings.shard_lease,
            lambda: heartbeat.node_id,
        )
        # Started last is stopped first: a long tick of the upkeep, which belongs to no shard, must not
        # delay the handover of the shards.
        self._tick(
            Reaper(store, self.settings),
            Overruns(store, self.app.tasks, self.settings),
            Janitor(store, self.settings, shards),
            Depths(store.database, shards),
            Pools(store.database, shards),
        )
        self._undo.push_async_callback(shards.leave)
        self._tick(Advancer(store.database, _ADVANCE_SECONDS))
        self._tick(shards, Firer(ScheduleStore(store.database), shards), Releaser(store, shards))

    def _start_triggers(self, database: Database) -> None:
        """Read the streams of brokers that the app's code names, if it names any."""
        if not self.app.triggers.declared:
            return
        from rota.worker.triggers import TriggerReader

        assert self._heartbeat is not None
        for spec in self.app.triggers.declared.values():
            reader = TriggerReader(self.app, database, self._heartbeat, spec)
            self._undo.push_async_callback(reader.leave)
            self._tick(reader)

    def _start_sinks(self, database: Database) -> None:
        """Send events to the topics of brokers that the app's code names, if it names any."""
        if not self.app.sinks.declared:
            return
        from rota.worker.outbox import Outbox

        assert self._heartbeat is not None
        for spec in self.app.sinks.declared.values():
            outbox = Outbox(self.app, database, self._heartbeat, spec)
            self._undo.push_async_callback(outbox.leave)
            self._tick(outbox)

    def _tick(self, *services: Service) -> None:
        for service in services:
            ticker = Ticker(service)
            ticker.start()
            self._undo.push_async_callback(ticker.stop)

    async def _start_metrics(self) -> None:
        """Make the metrics available to the server's /metrics, or on a port of their own."""
        if self.settings.metrics_port is None and "server" not in self.roles:
            return
        store = await self.app.store()
        metrics = shared_metrics[self.app] = Metrics(store.database, self.worker_role)
        if self.settings.metrics_port is not None:
            self.metrics_port = MetricsPort(
                metrics, self, self.settings.metrics_host, self.settings.metrics_port
            )
            self._undo.push_async_callback(self.metrics_port.stop)
            await self.metrics_port.start()

    def _profile(self) -> NodeProfile:
        role = self.worker_role
        return NodeProfile(
            namespace=self.settings.namespace,
            name=f"{self.settings.node_name}:{os.getpid()}",
            host=socket.gethostname(),
            pid=os.getpid(),
            version=rota.__version__,
            roles=self.roles,
            queues=tuple(sorted(self._served.queues)),
            capabilities=tuple(sorted(self._served.capabilities)),
            tasks=tuple(role.worker.task_names) if role else (),
            slots=role.worker.slots.capacity() if role else 0,
            resources=to_json(self._served.resources) if role else None,
            labels=tuple(sorted(self._served.labels)),
            heartbeat_timeouts=heartbeat_timeouts(self.app.tasks) if role else {},
            release=role.release if role else None,
        )

    def count_running(self) -> int:
        return self.worker_role.count_running() if self.worker_role else 0

    # -- for probes

    def health(self) -> Report:
        """Report whether this process works at all. The answer itself shows that the loop runs."""
        heartbeat = self._heartbeat
        # The heartbeat's thread tries at least this often, whether or not the database answers.
        patience = self.settings.lease_seconds + self.settings.connect_timeout
        patience += self.settings.statement_timeout
        silent = 0.0 if heartbeat is None else monotonic() - heartbeat.tried_at
        reason = f"the heartbeat has not been tried for {format_duration(silent)}"
        return Report.of(self.roles, [check("heartbeat", silent < patience, reason)])

    def readiness(self) -> Report:
        """Report whether it is part of the cluster and does its work."""
        heartbeat, role = self._heartbeat, self.worker_role
        trusted = heartbeat is not None and heartbeat.trusted
        checks = [
            check("database", trusted, "the database has not confirmed the last heartbeats"),
            check(
                "registered", heartbeat is not None and heartbeat.registered, "not registered yet"
            ),
        ]
        draining = role is not None and role.is_draining()
        stopping = self._stop_requested.is_set() or draining
        checks.append(check("draining", not stopping, "it is stopping, and starts no jobs"))
        if role is not None:
            checks.append(check("claiming", role.claims, "it can't claim jobs: see its log"))
        if "scheduler" in self.roles:
            joined = self._shards is not None and self._shards.joined
            reason = "it takes no part in sharing the shards among schedulers"
            checks.append(check("shards", joined, reason))
        if "server" in self.roles:
            checks.append(check("server", self._serving, "it does not listen yet"))
        if "relay" in self.roles and self.relay is not None:
            reaches = bool(getattr(self.relay, "reaches_broker", True))
            checks.append(check("broker", reaches, "the broker does not answer"))
        return Report.of(self.roles, checks)

    # -- stopping

    async def _start_when_it_can(self) -> None:
        failures = 0
        while True:
            try:
                await self.start()
                return
            except StoreUnavailable as error:
                if not self.waits_for_database:
                    raise
                failures += 1
                pause = min(0.5 * 2.0 ** min(failures - 1, 8), _LONGEST_WAIT) * (0.5 + unit())
                log.warning("can't start yet, trying again in %.1f s: %s", pause, error)
            await asyncio.sleep(pause)

    async def stop(self) -> None:
        """Drain (see `WorkerRole`), end the services, and leave the cluster."""
        await self._undo.aclose()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Node]:
        await self.start()
        try:
            yield self
        finally:
            await self.stop()


def _checked_roles(
    roles: Sequence[Role], server: ServerRole | None, relay: ServerRole | None
) -> tuple[Role, ...]:
    for role in roles:
        if role not in _KNOWN_ROLES:
            raise ConfigError(f"role {role!r} is not one of: {', '.join(_KNOWN_ROLES)}")
    if "server" in roles and server is None:
        raise ConfigError(
            "a node with the role server needs one: Node(app, ..., server=Server(app)), "
            "from rota.server.serving"
        )
    if "relay" in roles and relay is None:
        raise ConfigError(
            "a node with the role relay needs one: Node(app, ..., relay=Relay(app)), "
            "from rota.server.dispatch.relay"
        )
    return tuple(dict.fromkeys(roles))


def _checked_queues(queues: Sequence[str] | Mapping[str, int | None]) -> dict[str, int | None]:
    limits = dict(queues) if isinstance(queues, Mapping) else dict.fromkeys(queues)
    for queue, limit in limits.items():
        check_name("queue", queue)
        if limit is not None and limit < 1:
            raise ConfigError(f"queue {queue!r}: its limit must be at least 1, not {limit}")
    return limits
