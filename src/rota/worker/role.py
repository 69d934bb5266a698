"""The worker role of a node: runners, the worker that feeds them, and what becomes of their outcomes.

Protocol of stopping. Stop claiming and give back what hasn't begun; let the rest end within the grace
period; ask what then still runs to stop, and give it back; write down every outcome; only then end the
services and the runners. Dying anywhere in between leaves leases, which run out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from time import monotonic
from uuid import UUID

import msgspec

from rota.app import App
from rota.core.signature import release_of
from rota.errors import StoreUnavailable
from rota.lib import capture, tracing
from rota.runtime.clock import DatabaseClock
from rota.runtime.heartbeat import Heartbeat
from rota.runtime.listener import Listener
from rota.runtime.ticker import Ticker
from rota.runtime.watchdog import watch_overdue
from rota.store.database import Database
from rota.store.endpoints import EndpointStore
from rota.store.events import EventStore
from rota.store.logs import LogStore
from rota.store.work import WorkStore
from rota.worker.claim_loop import ServedQueues, Worker
from rota.worker.effects import Effects
from rota.worker.endpoint_watch import EndpointWatch
from rota.worker.failure_log import FailureLog
from rota.worker.finisher import Finisher
from rota.worker.log_writer import LogWriter
from rota.worker.outcomes import Outcomes
from rota.worker.run_limits import RunLimits
from rota.worker.runners.base import Runner
from rota.worker.runners.loop import LoopRunner
from rota.worker.runners.process import ProcessRunner
from rota.worker.runners.reference import reference_to
from rota.worker.runners.thread import ThreadRunner
from rota.worker.slow_jobs import SlowJobMonitor

log = logging.getLogger("rota.node")

_PIPELINE = 64  # works that a child process may have ahead, when they are short


class WorkerRole:
    def __init__(
        self, app: App, database: Database, heartbeat: Heartbeat, serves: ServedQueues
    ) -> None:
        settings = app.settings
        # Its own: stored endpoints come and go, and are no business of other namespaces' callers.
        self._tasks = tasks = dict(app.tasks)
        self._app = app
        self._settings = settings
        self._database = database
        self._heartbeat = heartbeat
        self._store = WorkStore(database)
        self._finisher = Finisher(self._store, self._more_is_coming)
        self._finisher.node = heartbeat.node_id
        self._finisher.clock = heartbeat.clock
        self._logs = LogWriter(LogStore(database), settings, heartbeat.clock, self._node_id)
        self._finisher.logs = self._logs
        self.outcomes = Outcomes(tasks, settings, self._finisher, self._node_id)
        self.worker = Worker(self._store, tasks, settings, heartbeat, serves, self.outcomes)
        # Handlers' own transactions last as long as handlers do, and must not hold up the queue's.
        patient = settings.replace(
            pool_size=max(2, min(settings.concurrency, 20)), statement_timeout=3600.0
        )
        self._effects_database = database.sibling(patient)
        self._effects = Effects(
            self._effects_database,
            settings,
            self._finisher,
            self._node_id,
            lambda: heartbeat.trusted,
        )
        self.outcomes.observers.append(self._effects.attempt_ended)
        self._listener = Listener(
            database, settings.namespace, self._node_id, self._hear, self._hints_work
        )
        self._slow_jobs = SlowJobMonitor(
            EventStore(database), settings.namespace, tasks, self.worker.slots, heartbeat.clock,
            settings.late_after,
        )  # fmt: skip
        self.outcomes.observers.append(self._slow_jobs.ended)
        self.outcomes.observers.append(FailureLog(app.error_hooks).ended)
        self._run_limits = RunLimits(
            self._store, settings, self.worker.slots, self.worker.stop_work
        )
        self._endpoints: EndpointWatch | None = None
        if settings.serve_endpoints:
            self._endpoints = EndpointWatch(
                app, EndpointStore(database), tasks, heartbeat, self.worker.know_tasks
            )
        self._tickers: list[Ticker] = []
        self._claiming: Ticker | None = None
        self._capturing = False
        self._runners: list[Runner] = []
        self._fetching: set[asyncio.Task[None]] = set()

    # -- starting

    async def prepare(self) -> None:
        """Everything that can fail, before the node says that it is there."""
        (await self._store.database.known_encryption()).check()  # or nothing could be read here
        await self._effects_database.open()
        self._make_runners()
        tracing.look()
        capture.install()
        self._capturing = True
        for runner in self._runners:
            await runner.start()
        await self._register_tasks()
        await self._store.warm()
        if self._endpoints is not None:
            await self._endpoints.load()

    def _make_runners(self) -> None:
        settings, done, tasks = self._settings, self.outcomes.done, self._tasks
        needed = {task.runner for task in tasks.values()}
        loop = LoopRunner(tasks, settings.concurrency, settings.max_result_bytes, done)
        loop.desk, loop.transact = self._effects, self._effects.transact
        watch_overdue(loop.overdue_code)
        loop.book = self._logs if settings.log_bytes else None
        loop.error_hooks = self._app.error_hooks
        loop.running, loop.over_maximum = self.worker.slots.running_works, self._run_limits.is_over
        self._add("loop", loop)
        if "thread" in needed:
            threads = ThreadRunner(tasks, settings.threads, settings, done)
            threads.on_call, threads.book = self._effects.answer, loop.book
            threads.error_hooks = self._app.error_hooks
            self._add("thread", threads)
        if "process" in needed:
            processes = ProcessRunner(reference_to(self._app), settings.processes, settings, done)
            processes.on_call, processes.book = self._effects.answer, loop.book
            self._add("process", processes, ahead=settings.processes * _PIPELINE)

    def _add(self, name: str, runner: Runner, ahead: int = 0) -> None:
        self.worker.slots.add(name, runner, ahead)
        self._runners.append(runner)

    async def _register_tasks(self) -> None:
        rows = [
            (task.name, options.queue, "+".join(options.needs), options.priority,
             int(options.guarantee), options.retry.max_attempts, options.timeout, options.expected,
             options.deadline)
            for task in self._app.tasks.values()
            for options in [task.options_]
        ]  # fmt: skip
        if rows:
            columns = list(zip(*rows, strict=True))
            await self._store.register_tasks(self._settings.namespace, columns)
            await self._store.register_signatures(
                self._settings.namespace, self.release, self._signatures()
            )

    def _signatures(self) -> dict[str, str]:
        """Of each task, as JSON."""
        return {
            name: msgspec.json.encode(task.arguments.describe()).decode()
            for name, task in sorted(self._app.tasks.items())
        }

    @property
    def release(self) -> str:
        """The same on all nodes whose tasks have the same signatures."""
        return release_of(self._signatures())

    def start(self) -> None:
        worker, finisher, listener = (
            Ticker(service) for service in (self.worker, self._finisher, self._listener)
        )
        self._claiming = worker
        self.worker.wake = worker.wake
        self.outcomes.wake = finisher.wake
        self._listener.wake = self._heartbeat.on_deaf = listener.wake
        self._heartbeat.on_idle_withdrawn = self._idle_withdrawn
        logs = Ticker(self._logs)
        self._logs.wake = logs.wake
        self._tickers = [finisher, logs, worker, listener]
        self._tickers += [Ticker(self._slow_jobs), Ticker(self._run_limits)]
        if self._endpoints is not None:
            self._endpoints.registered()
            endpoints = Ticker(self._endpoints)
            self._endpoints.wake = endpoints.wake
            self._tickers.append(endpoints)
        for ticker in self._tickers:
            ticker.start()

    # -- hints and signals

    def _hear(self, payload: str, to_us_alone: bool) -> None:
        first, _, rest = payload.partition(" ")
        if first == "signal":
            if rest == str(self._heartbeat.node_id):
                task = asyncio.ensure_future(self._fetch_signals())
                self._fetching.add(task)
                task.add_done_callback(self._fetching.discard)
        elif first == "callback":
            self._app.endpoints.callbacks.hear()
        elif first == "endpoints":
            if self._endpoints is not None:
                self._endpoints.wake()
        else:
            with contextlib.suppress(ValueError):
                rank, count = rest.split(" ")
                self.worker.hint(first, int(rank), int(count), to_us_alone)

    async def _fetch_signals(self) -> None:
        with contextlib.suppress(Exception):  # the next heartbeat brings them again
            rows = await self._database.fetch("signals_for", self._heartbeat.node_id)
            self.take_signals([tuple(row) for row in rows])

    def take_signals(self, signals: list[tuple[UUID, int, str]]) -> None:
        for job_id, token, _kind in signals:
            self.worker.stop_job(job_id, token, "cancel")

    def _hints_work(self, working: bool) -> None:
        if working != self.worker.hints_work:
            # Whatever was said while nobody listened; or from now on is said to nobody.
            self.worker.hints_work = working
            self.worker.cursors.sweep_all()
            self.worker.wake()

    def _idle_withdrawn(self) -> None:
        """Our loop was blocked, and hints went to others meanwhile."""
        self.worker.idle.forget()
        self.worker.wake()

    def declared_dead(self) -> None:
        """Everything this node held belongs to others now."""
        self.outcomes.forget()
        self._logs.forget()
        self.worker.abandon()
        self._finisher.node = self._heartbeat.node_id
        self._listener.wake()  # it has another name now

    @property
    def clock(self) -> DatabaseClock:
        return self._heartbeat.clock

    @property
    def claims(self) -> bool:
        """Whether it claims jobs, or would if there were any."""
        claiming = self._claiming
        return claiming is not None and not claiming.failing and not self.worker.keyless

    @property
    def task_names(self) -> list[str]:
        return self.worker.task_names

    def refused(self) -> dict[str, int]:
        """What came too late: others hold the leases."""
        return {"outcomes": self._finisher.refused, "logs": self._logs.refused}

    def _node_id(self) -> UUID:
        return self._heartbeat.node_id

    def _more_is_coming(self) -> bool:
        return self.worker.slots.busy()

    # -- stopping

    async def drain(self, at_once: asyncio.Event) -> None:
        """What runs may end within the grace period, unless told to stop at once."""
        worker = self.worker
        worker.draining = True
        with contextlib.suppress(StoreUnavailable):  # a hint that we swallow only costs time
            await worker.idle.leave()
        worker.give_back_unstarted()
        self.outcomes.wake()
        if not await self._wait_idle(self._settings.grace, at_once):
            log.warning("returning %d jobs that are still running", worker.slots.count_running())
            worker.stop_running("shutdown")
            await self._wait_idle(self._settings.kill_grace + 2, asyncio.Event())

    async def _wait_idle(self, seconds: float, at_once: asyncio.Event) -> bool:
        end = monotonic() + seconds
        while self.worker.slots.count_running() or self._finisher.pending:
            if monotonic() >= end or at_once.is_set():
                return False
            await asyncio.sleep(0.02)
        return True

    async def stop(self) -> None:
        with contextlib.suppress(Exception):  # what couldn't be written is reaped
            async with asyncio.timeout(10):
                await self._finisher.flush()
                await self._logs.flush()
        for ticker in reversed(self._tickers):
            await ticker.stop()
        self._tickers.clear()
        await self._listener.close()
        runners, self._runners = self._runners, []
        for runner in runners:
            await runner.stop()
        if self._capturing:
            capture.uninstall()
            self._capturing = False
        watch_overdue(None)
        await self._effects_database.close()
