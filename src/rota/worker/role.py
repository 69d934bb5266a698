"""The worker role of a node: the execution of jobs, the claim loop that feeds it, and their services.

Protocol of stopping. Stop claiming and give back what hasn't begun; let the rest end within the grace
period; ask what then still runs to stop, and give it back; write down every outcome; only then end the
services and the runners. Dying anywhere in between leaves leases, which run out.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from time import monotonic
from uuid import UUID

import msgspec

from rota.app import App
from rota.core.signature import release_of
from rota.errors import StoreUnavailable
from rota.runtime.advancer import Advancer
from rota.runtime.heartbeat import Heartbeat
from rota.runtime.lanes import ServedQueues
from rota.runtime.listener import Listener
from rota.runtime.ticker import Service, Ticker
from rota.runtime.watchdog import watch_overdue
from rota.store.database import Database
from rota.store.endpoints import EndpointStore
from rota.store.events import EventStore
from rota.worker.claim_loop import Worker
from rota.worker.endpoint_watch import EndpointWatch
from rota.worker.execution import Execution
from rota.worker.run_limits import RunLimits
from rota.worker.slow_jobs import SlowJobMonitor

log = logging.getLogger("rota.node")

_ADVANCE_SECONDS = 5.0  # between looks for runs to advance; ends of steps here wake it
_PIPELINE = 64  # works that a child process may have ahead, when they are short


class WorkerRole:
    def __init__(
        self, app: App, database: Database, heartbeat: Heartbeat, served: ServedQueues
    ) -> None:
        settings = app.settings
        # A copy: stored endpoints are added and removed, which must not change the app's own tasks.
        self._tasks = tasks = dict(app.tasks)
        self._app = app
        self._settings = settings
        self.heartbeat = heartbeat
        self._execution = Execution(app, database, heartbeat, tasks, app.error_hooks)
        self._store = self._execution.store
        self._finisher = self._execution.finisher
        self._logs = self._execution.logs
        self.outcomes = self._execution.outcomes
        self.worker = Worker(
            self._store, tasks, settings, heartbeat, served, self.outcomes, self._execution.starter
        )
        self._finisher.more_is_coming = self.worker.slots.busy
        self._finisher.flush_begins = self.worker.shared.flush_begins
        self._finisher.flush_ended = self.worker.note_flush
        self._listener = Listener(
            database, settings.namespace, heartbeat, self._receive, self._hints_work
        )
        self._slow_jobs = SlowJobMonitor(
            EventStore(database), settings, tasks, self.worker.slots, heartbeat.clock
        )
        self.outcomes.observers.append(self._slow_jobs.ended)
        self._run_limits = RunLimits(
            self._store, settings, self.worker.slots, self.worker.stop_work
        )
        self._advancer = Advancer(database, _ADVANCE_SECONDS)
        self._store.steps_ended = self._advance
        self._endpoints: EndpointWatch | None = None
        if settings.serve_endpoints:
            self._endpoints = EndpointWatch(
                app, EndpointStore(database), tasks, heartbeat, self.worker.know_tasks
            )
        self._tickers: list[Ticker] = []
        self._claiming: Ticker | None = None
        self._drained = False  # because somebody asked for it
        self._ending = False
        self._fetching: set[asyncio.Task[None]] = set()
        heartbeat.worker = self

    # -- starting

    async def prepare(self) -> None:
        """Do everything that can fail, before the node registers."""
        (await self._store.database.known_encryption()).check()  # or nothing could be read here
        execution = self._execution
        await execution.start()
        for name, runner in execution.runners.items():
            ahead = self._settings.processes * _PIPELINE if name == "process" else 0
            self.worker.slots.add(name, runner, ahead)
        loop = execution.loop
        loop.running, loop.over_maximum = self.worker.slots.running_works, self._run_limits.is_over
        watch_overdue(loop.overdue_code)
        await self._register_tasks()
        await self._store.warm()
        if self._endpoints is not None:
            await self._endpoints.load()

    async def _register_tasks(self) -> None:
        rows = [
            (task.name, options.queue, "+".join(options.demands), options.priority,
             int(options.guarantee), options.retry.max_attempts, options.timeout, options.expected,
             options.deadline, options.concurrency, options.concurrency_key is not None,
             *((rate.count, rate.period, rate.burst) if rate else (None, None, None)))
            for task in self._app.tasks.values()
            for options in [task.options_]
            for rate in [options.rate]
        ]  # fmt: skip
        if rows:
            columns = list(zip(*rows, strict=True))
            await self._store.register_tasks(self._settings.namespace, columns)
            await self._store.register_signatures(
                self._settings.namespace, self.release, self._signatures
            )

    @functools.cached_property
    def _signatures(self) -> dict[str, str]:
        """Return each task's signature as JSON."""
        return {
            name: msgspec.json.encode(task.registered()).decode()
            for name, task in sorted(self._app.tasks.items())
        }

    @functools.cached_property
    def release(self) -> str:
        """The release: the same on all nodes whose tasks have the same signatures."""
        return release_of(self._signatures)

    def start(self) -> None:
        self._claiming = Ticker(self.worker)
        services: list[Service] = [self._listener, self._slow_jobs, self._run_limits]
        services.append(self.worker.reservations)
        services.append(self._advancer)
        if self._endpoints is not None:
            self._endpoints.registered()
            services.append(self._endpoints)
        self._tickers = [Ticker(self._finisher), Ticker(self._logs), self._claiming]
        self._tickers += [Ticker(service) for service in services]
        for ticker in self._tickers:
            ticker.start()

    def _advance(self) -> None:
        self._advancer.wake()

    # -- hints and signals

    def _receive(self, payload: str, to_us_alone: bool) -> None:
        first, _, rest = payload.partition(" ")
        if first == "signal":
            if rest == str(self.heartbeat.node_id):
                task = asyncio.ensure_future(self._fetch_signals())
                self._fetching.add(task)
                task.add_done_callback(self._fetching.discard)
        elif first == "allotment":
            self.worker.note_asked()
        elif first == "permit":
            self._execution.permits.wake(rest)
        elif first == "callback":
            self._app.endpoints.callbacks.look_now()
        elif first == "endpoints":
            if self._endpoints is not None:
                self._endpoints.wake()
        else:
            with contextlib.suppress(ValueError):
                rank, count = rest.split(" ")
                self.worker.hint(first, int(rank), int(count), to_us_alone)

    async def _fetch_signals(self) -> None:
        with contextlib.suppress(Exception):  # the next heartbeat brings them again
            rows = await self._store.database.fetch("signals_for", self.heartbeat.node_id)
            self.take_signals([tuple(row) for row in rows])

    def take_signals(self, signals: list[tuple[UUID, int, str]]) -> None:
        for job_id, token, _kind in signals:
            self.worker.stop_job(job_id, token, "cancel")

    def _hints_work(self, working: bool) -> None:
        if working != self.worker.hints_work:
            # Hints were lost while nobody listened; or are lost from now on.
            self.worker.hints_work = working
            self.worker.cursors.sweep_all()
            self.worker.wake()

    # -- for the heartbeat

    def count_running(self) -> int:
        return self.worker.slots.count_running()

    def is_draining(self) -> bool:
        return self.worker.draining

    def take_wish(self, wish: str | None) -> None:
        if self._ending or (wish is not None) == self._drained:
            return
        self._drained = self.worker.draining = wish is not None
        if self._drained:
            log.info("asked to %s: no more jobs are started here", wish)
            self.worker.give_back_unstarted()
            self._finisher.wake()
        else:
            log.info("no longer asked to drain: jobs are started again")
            self.worker.cursors.sweep_all()
        self.worker.wake()

    def idle_withdrawn(self) -> None:
        self.worker.idle.forget()
        self.worker.wake()

    def listener_lost(self) -> None:
        self._listener.wake()

    def declared_dead(self) -> None:
        """Drop everything that this node held: it belongs to others now."""
        self._execution.forget()
        self.worker.abandon()
        self._listener.wake()  # the node has another id now, and so another channel

    @property
    def claims(self) -> bool:
        """True while it claims jobs, or would if there were any."""
        claiming = self._claiming
        return claiming is not None and not claiming.failing and not self.worker.starter.keyless

    def refused(self) -> dict[str, int]:
        """Return how many writes were refused because others hold the leases."""
        return {"outcomes": self._finisher.refused, "logs": self._logs.refused}

    # -- stopping

    async def drain(self, at_once: asyncio.Event) -> None:
        """Let what runs end within the grace period, unless `at_once` is set."""
        worker = self.worker
        self._ending = worker.draining = True
        with contextlib.suppress(StoreUnavailable):  # a lost hint only costs time
            await worker.idle.leave()
        worker.give_back_unstarted()
        self._finisher.wake()
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
                await self._execution.flush()
        for ticker in reversed(self._tickers):
            await ticker.stop()
        self._tickers.clear()
        await self._listener.close()
        watch_overdue(None)
        await self._execution.stop()
