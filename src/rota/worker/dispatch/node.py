"""A process that runs an app's jobs without a database: `rota start --dispatch redis://...`.

It has the runners, lifespans and error hooks of a node with the role worker, and for each runner that
its tasks need a worker of its own (`session`), so that what is claimed for one fits its places.

Protocol of stopping. Claim no more and give back what hasn't begun; let the rest end within the grace
period; ask what then still runs to stop, which gives it back; report every outcome, and leave. Dying
anywhere in between leaves leases, which run out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from time import monotonic
from typing import Any
from uuid import UUID

import msgspec

from rota import lifecycle
from rota.app import App
from rota.config import OWN_PREFIX, check_name
from rota.context import JobInfo
from rota.core.resources import to_public
from rota.durable.function import DurableFunction
from rota.errors import ConfigError
from rota.generators import GeneratorTask
from rota.lib import capture, tracing
from rota.model import Guarantee, Outcome, OutcomeKind
from rota.runtime.dispatch import Broker, broker_address, open_broker
from rota.runtime.dispatch.seal import Sealer
from rota.runtime.machine import resources_of_node
from rota.runtime.stopping import Stoppable
from rota.runtime.work import Work
from rota.task import Task, heartbeat_timeouts
from rota.worker.dispatch.desk import RemoteDesk
from rota.worker.dispatch.session import Session
from rota.worker.runners.base import NodeParts, Runner
from rota.worker.runners.loop import LoopRunner
from rota.worker.runners.process import ProcessRunner
from rota.worker.runners.reference import reference_to
from rota.worker.runners.results import call_hooks, named_error
from rota.worker.runners.thread import ThreadRunner

log = logging.getLogger("rota.dispatch")

# Handlers that want the database get an error that says why there is none, and not an embedded one.
_NO_DATABASE = "postgresql://workers-by-a-broker-have-no-database.invalid/rota"


class DispatchedNode(Stoppable):
    """Runs an app's jobs, which it takes from a broker. `await node.run()` until a signal.

    Args:
        app: the application whose tasks it runs. Its settings name the broker (`dispatch`) and the
            secret (`dispatch_secret`).
        queues: the queues it serves; none named: all.
        capabilities: what its jobs may need (``gpu``).
        labels: what jobs may be near to (``model7``).
        resources: what it has for jobs that ask for it, as ``{"gpu": 2}``, beside the setting.
    """

    def __init__(
        self, app: App, queues: Sequence[str] = (), capabilities: Sequence[str] = (),
        broker: Broker | None = None, labels: Sequence[str] = (),
        resources: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        for kind, names in (("queue", queues), ("capability", capabilities), ("label", labels)):
            for name in names:
                check_name(kind, name)
        super().__init__()
        settings = app.settings
        self.app = app
        self._sealer = Sealer(settings.dispatch_secret, settings.namespace)
        self._shown = broker_address(settings.dispatch).shown
        self._broker = broker
        self._queues, self._capabilities = sorted(set(queues)), sorted(set(capabilities))
        self._labels = sorted(set(labels))
        self._resources = resources_of_node(settings, resources)
        self._sessions: dict[str, Session] = {}
        self._runners: dict[str, Runner] = {}
        self._undo = contextlib.AsyncExitStack()

    @property
    def id(self) -> UUID | None:
        """The id of its first worker: new at every start, and after it was declared dead."""
        return next((session.id for session in self._sessions.values()), None)

    def count_running(self) -> int:
        return sum(session.count_running() for session in self._sessions.values())

    # -- starting

    async def start(self) -> None:
        """Start the runners, and register with a relay, however long that takes."""
        app = self.app
        if app.settings.database_url is None:
            os.environ["ROTA_DATABASE_URL"] = _NO_DATABASE  # of child processes
            app.settings = app.settings.replace(database_url=_NO_DATABASE)
        app.prepare()
        app.check_scopes()
        tasks = servable(app.tasks)
        try:
            broker = self._broker or open_broker(app.settings.dispatch, app.settings.namespace)
            self._undo.push_async_callback(broker.close)
            lifespans = lifecycle.Lifespans()
            await lifespans.begin(app.lifespans, app.state)
            self._undo.push_async_callback(lifespans.end, app.settings.kill_grace)
            self._make(broker, tasks)
            tracing.look()
            capture.install()
            self._undo.callback(capture.uninstall)
            for runner in self._runners.values():
                self._undo.push_async_callback(runner.stop)
                await runner.start()
            self._undo.push_async_callback(self._drain)
            for session in self._sessions.values():
                await session.start()
        except BaseException:
            await self._undo.aclose()
            raise
        log.info("taking jobs from %s", self._shown)

    def _make(self, broker: Broker, tasks: Mapping[str, Task[..., Any]]) -> None:
        for name in sorted({task.runner for task in tasks.values()}):
            own = {each.name: each for each in tasks.values() if each.runner == name}
            session = Session(
                broker, self._sealer, self.app.settings, self._profile(name, own), own,
                heartbeat_timeouts(own),
            )  # fmt: skip
            self._sessions[name] = session
            session.runner = self._runners[name] = self._runner(name, own, session)

    def _runner(self, name: str, tasks: Mapping[str, Task[..., Any]], session: Session) -> Runner:
        app, settings = self.app, self.app.settings
        book = session.reports.book if settings.log_bytes else None

        def done(work: Work, outcome: Outcome) -> None:
            if app.error_hooks:
                _call_hooks(app, work, outcome)
            session.done(work, outcome)

        desk = RemoteDesk(app.state, session.reports.report_progress)
        parts = NodeParts(settings, done, desk, book, app.error_hooks)
        if name == "loop":
            return LoopRunner(tasks, settings.concurrency, parts)
        if name == "thread":
            return ThreadRunner(tasks, settings.threads, parts)
        close_seconds = settings.kill_grace if app.child_lifespans else None
        return ProcessRunner(
            reference_to(app), settings.processes, parts, close_seconds=close_seconds
        )

    def _profile(self, runner: str, tasks: Mapping[str, Task[..., Any]]) -> dict[str, Any]:
        name = f"{self.app.settings.node_name}:{os.getpid()}"
        return {
            "name": name if runner == "loop" else f"{name}:{runner}",
            "tasks": [described(task) for task in tasks.values()],
            "queues": self._queues, "capabilities": self._capabilities, "labels": self._labels,
            "resources": to_public(self._part_of(tasks)),
            "version": f"{version('rota')} {socket.gethostname()}"[:100],
        }  # fmt: skip

    def _part_of(self, tasks: Mapping[str, Task[..., Any]]) -> dict[str, int]:
        """Return the resources of the worker that runs these tasks.

        Each runner is a worker of its own to the relay: those with tasks that ask for some share them.
        """
        kinds = {
            task.runner for task in self.app.tasks.values() if task.options_.resources is not None
        }
        mine = {task.runner for task in tasks.values()}
        if kinds and not kinds & mine:
            return {}
        return {name: units // max(len(kinds), 1) for name, units in self._resources.items()}

    # -- stopping

    async def stop(self) -> None:
        await self._undo.aclose()

    async def _drain(self) -> None:
        sessions = list(self._sessions.values())
        settings = self.app.settings
        for session in sessions:
            session.drain()
        if not await self._wait_idle(sessions, settings.grace, self._stop_at_once):
            log.warning("returning %d jobs that are still running", self.count_running())
            for session in sessions:
                session.stop_running("shutdown")
            await self._wait_idle(sessions, settings.kill_grace + 2, asyncio.Event())
        await asyncio.gather(*(session.stop() for session in sessions))

    async def _wait_idle(
        self, sessions: Sequence[Session], seconds: float, at_once: asyncio.Event
    ) -> bool:
        end = monotonic() + seconds
        while any(session.busy for session in sessions):
            if monotonic() >= end or at_once.is_set():
                return False
            await asyncio.sleep(0.02)
        return True


def servable(tasks: Mapping[str, Task[..., Any]]) -> dict[str, Task[..., Any]]:
    """Return the tasks that can be run without a database."""
    able, unable = {}, []
    for name, task in tasks.items():
        if name.startswith(OWN_PREFIX):
            continue
        transaction = task.options_.guarantee is Guarantee.EXACTLY_ONCE
        if transaction or isinstance(task, GeneratorTask | DurableFunction):
            unable.append(name)
        else:
            able[name] = task
    if unable:
        log.warning(
            "these tasks need the database, and are not run here: %s", ", ".join(sorted(unable))
        )
    if not able:
        raise ConfigError("the app has no task that can be run without a database")
    return able


def described(task: Task[..., Any]) -> dict[str, Any]:
    """Return what a worker registers of a task."""
    options = task.options_
    retry = msgspec.structs.asdict(options.retry)
    for rules in ("only_on", "never_on"):  # relays would miss base classes: see `finish_item`
        retry[rules] = []
    signature = task.registered()
    described: dict[str, Any] = {
        "name": task.name, "queue": options.queue, "needs": list(options.needs),
        "resources": options.resources, "near": options.near, "near_patience": options.near_patience,
        "priority": options.priority, "guarantee": options.guarantee.label,
        "timeout": options.timeout, "heartbeat_timeout": options.heartbeat_timeout, "retry": retry,
    }  # fmt: skip
    if len(signature.arguments) <= 100:
        described["signature"] = {
            "arguments": msgspec.to_builtins(signature.arguments), "open": signature.open,
        }  # fmt: skip
    return described


def _call_hooks(app: App, work: Work, outcome: Outcome) -> None:
    """Call the app's `on_error` hooks for failures without an exception of the handler."""
    if outcome.failure is not None and outcome.kind in (
        OutcomeKind.TIMED_OUT, OutcomeKind.HEARTBEAT_TIMEOUT, OutcomeKind.CRASHED,
    ):  # fmt: skip
        error = named_error(outcome.failure.type, outcome.failure.message)
        call_hooks(app.error_hooks, JobInfo.of(work), error)
