"""A node: one process of the cluster. The one place that wires roles together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Literal
from uuid import UUID

import rota
from rota.app import App
from rota.config import Settings, check_name
from rota.errors import ConfigError
from rota.runners.base import Runner
from rota.runners.loop import LoopRunner
from rota.runners.process import ProcessRunner
from rota.runners.reference import reference_to
from rota.runners.thread import ThreadRunner
from rota.services.effects import Effects
from rota.services.finisher import Finisher
from rota.services.janitor import Janitor
from rota.services.keeper import Keeper, NodeProfile
from rota.services.listener import Listener
from rota.services.outcomes import Outcomes
from rota.services.reaper import Reaper
from rota.services.releaser import Releaser
from rota.services.ticker import Service, Ticker
from rota.services.watchdog import watch_overdue
from rota.services.worker import Serves, Worker
from rota.store.database import Database
from rota.store.work import UpkeepStore, WorkStore

log = logging.getLogger("rota.node")

Role = Literal["scheduler", "worker"]
ROLES: tuple[Role, ...] = ("scheduler", "worker")


class Node:
    """Runs an app's jobs. `await node.run()` until a signal, or start() and stop() by hand.

    Args:
        app: whose tasks it knows.
        roles: ``scheduler`` (releases, reaps, cleans up), ``worker``, or both.
        queues: the queues it serves; none named: all. As a mapping, with how many jobs of a queue
            it has at a time: ``{"heavy": 2, "default": None}``.
        capabilities: what its jobs may need (``gpu``).
    """

    def __init__(
        self,
        app: App,
        roles: Sequence[Role] = ROLES,
        queues: Sequence[str] | Mapping[str, int | None] = (),
        capabilities: Sequence[str] = (),
    ) -> None:
        for role in roles:
            if role not in ROLES:
                raise ConfigError(f"role {role!r} is not one of: {', '.join(ROLES)}")
        limits = dict(queues) if isinstance(queues, Mapping) else dict.fromkeys(queues)
        for queue, limit in limits.items():
            check_name("queue", queue)
            if limit is not None and limit < 1:
                raise ConfigError(f"queue {queue!r}: its limit must be at least 1, not {limit}")
        for capability in capabilities:
            check_name("capability", capability)
        self.app = app
        self.roles = tuple(dict.fromkeys(roles))
        self._serves = Serves(limits, capabilities)
        self._tickers: list[Ticker] = []
        self._runners: list[Runner] = []
        self._stop_requests = 0
        self._stop_requested = asyncio.Event()
        self._stop_now = asyncio.Event()
        self._worker: Worker | None = None

    @property
    def settings(self) -> Settings:
        return self.app.settings

    @property
    def id(self) -> UUID:
        return self._keeper.node_id

    # -- starting

    async def start(self) -> None:
        async with contextlib.AsyncExitStack() as opened:
            self._database = await self.app.open_database(hot=True)
            opened.push_async_callback(self._database.close)
            self._keeper = Keeper(self._database, self.settings, self)
            if "worker" in self.roles:
                opened.push_async_callback(self._stop_runners)
                await self._prepare_worker()
            await self._keeper.start(self._profile())
            self._start_services()
            opened.pop_all()
        log.info("node %s is up: %s", self._keeper.node_id, ", ".join(self.roles))

    async def _prepare_worker(self) -> None:
        settings = self.settings
        store = WorkStore(self._database)
        self._finisher = Finisher(store, self._more_is_coming)
        self._finisher.node = self._keeper.node_id
        self._outcomes = Outcomes(self.app.tasks, settings, self._finisher, self._node_id)
        self._worker = Worker(
            store, self.app.tasks, settings, self._keeper, self._serves, self._outcomes
        )
        # Handlers' own transactions last as long as handlers do, and must not hold up the queue's.
        patient = settings.replace(
            pool_size=max(2, min(settings.concurrency, 20)), statement_timeout=3600.0
        )
        self._effects_database = Database(self._database.url, patient)
        await self._effects_database.open()
        self._effects = Effects(self._effects_database, settings, self._finisher, self._node_id)
        await self._start_runners(self._worker)
        await self._register_tasks(store)

    async def _start_runners(self, worker: Worker) -> None:
        settings, done = self.settings, self._outcomes.done
        tasks = self.app.tasks
        needed = {task.runner for task in tasks.values()} | {"loop"}
        loop = LoopRunner(tasks, settings.concurrency, settings.max_result_bytes, done)
        loop.desk, loop.transact = self._effects, self._effects.transact
        watch_overdue(loop.overdue_code)
        self._add_runner(worker, "loop", loop)
        if "thread" in needed:
            threads = ThreadRunner(tasks, settings.threads, settings, done)
            threads.on_call = self._effects.answer
            self._add_runner(worker, "thread", threads)
        if "process" in needed:
            reference = reference_to(self.app)
            processes = ProcessRunner(reference, settings.processes, settings, done)
            processes.on_call = self._effects.answer
            # It looks ahead by itself, so that short functions don't wait for the pipe.
            self._add_runner(worker, "process", processes, ahead=settings.processes * 64)
        for runner in self._runners:
            await runner.start()

    def _add_runner(self, worker: Worker, name: str, runner: Runner, ahead: int = 0) -> None:
        worker.slots.add(name, runner, ahead)
        self._runners.append(runner)

    async def _register_tasks(self, store: WorkStore) -> None:
        rows = [
            (task.name, options.queue, "+".join(options.needs), options.priority,
             int(options.guarantee), options.retry.max_attempts, options.timeout)
            for task in self.app.tasks.values()
            for options in [task.options_]
        ]  # fmt: skip
        if rows:
            await store.register_tasks(self.settings.namespace, list(zip(*rows, strict=True)))

    def _profile(self) -> NodeProfile:
        worker = self._worker
        return NodeProfile(
            namespace=self.settings.namespace,
            name=f"{self.settings.node_name}:{os.getpid()}",
            host=socket.gethostname(),
            pid=os.getpid(),
            version=rota.__version__,
            roles=self.roles,
            queues=tuple(sorted(self._serves.queues)),
            capabilities=tuple(sorted(self._serves.capabilities)),
            tasks=tuple(sorted(self.app.tasks)) if worker else (),
            slots=worker.slots.capacity() if worker else 0,
        )

    def _start_services(self) -> None:
        if self._worker is not None:
            worker = Ticker(self._worker)
            finisher = Ticker(self._finisher)
            self._worker.wake = worker.wake
            self._outcomes.wake = finisher.wake
            listener = Listener(
                self._database, self.settings.namespace, self._hear, self._hints_work
            )
            self._listener = listener
            self._finisher_ticker = finisher
            self._worker_ticker = worker
            self._tickers += [finisher, worker, Ticker(listener)]
        if "scheduler" in self.roles:
            upkeep = UpkeepStore(self._database)
            services: list[Service] = [
                Releaser(upkeep),
                Reaper(upkeep, self.settings),
                Janitor(upkeep, self.settings),
            ]
            self._tickers += [Ticker(service) for service in services]
        for ticker in self._tickers:
            ticker.start()

    # -- what the keeper tells, and asks

    def count_running(self) -> int:
        return self._worker.slots.count_running() if self._worker else 0

    def is_draining(self) -> bool:
        return self._worker is not None and self._worker.draining

    def declared_dead(self) -> None:
        """Everything this node held belongs to others now."""
        if self._worker is not None:
            self._outcomes.forget()
            self._worker.abandon()
            self._finisher.node = self._keeper.node_id

    def take_signals(self, signals: list[tuple[UUID, int, str]]) -> None:
        if self._worker is not None:
            for job_id, token, _kind in signals:
                self._worker.stop_job(job_id, token, "cancel")

    # -- hints

    def _hear(self, payload: str) -> None:
        if self._worker is None:
            return
        first, _, rest = payload.partition(" ")
        if first == "signal":
            if rest == str(self._keeper.node_id):
                self._fetching = asyncio.ensure_future(self._fetch_signals())
        else:
            rank, _, _ = rest.partition(" ")
            with contextlib.suppress(ValueError):
                self._worker.hint(first, int(rank))

    async def _fetch_signals(self) -> None:
        rows = await self._database.fetch("signals_for", self._keeper.node_id)
        self.take_signals([tuple(row) for row in rows])

    def _hints_work(self, working: bool) -> None:
        assert self._worker is not None
        if working and not self._worker.hints_work:
            # Whatever was said while nobody listened.
            self._worker.cursors.sweep_all()
            self._worker.wake()
        self._worker.hints_work = working

    def _node_id(self) -> UUID:
        return self._keeper.node_id

    def _more_is_coming(self) -> bool:
        return self._worker is not None and self._worker.slots.busy()

    # -- stopping

    def request_stop(self) -> None:
        """The first time: drain. The second: stop at once."""
        self._stop_requests += 1
        if self._stop_requests == 1:
            self._stop_requested.set()
        elif self._stop_requests == 2:
            self._stop_now.set()
        else:
            os._exit(1)

    async def run(self) -> None:
        """Start, serve until SIGTERM or SIGINT, drain, and stop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.request_stop)
        try:
            if await self._started_before_a_stop():
                await self._stop_requested.wait()
        finally:
            await self.stop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    async def _started_before_a_stop(self) -> bool:
        """Start, unless a signal comes first: then whatever has begun is undone."""
        starting = asyncio.create_task(self.start())
        stopping = asyncio.create_task(self._stop_requested.wait())
        await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if starting.done():
            starting.result()
            return True
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await starting
        return False

    async def stop(self) -> None:
        """Stop claiming, give back what hasn't started, let the rest end within the grace period,
        return what then still runs, and leave the cluster."""
        if self._worker is not None and hasattr(self, "_worker_ticker"):
            await self._drain(self._worker)
        for ticker in reversed(self._tickers):
            await ticker.stop()
        self._tickers.clear()
        if hasattr(self, "_listener"):
            await self._listener.close()
        await self._stop_runners()
        if hasattr(self, "_keeper"):
            await self._keeper.stop()
        if hasattr(self, "_database"):
            await self._database.close()
        await self.app.close()

    async def _drain(self, worker: Worker) -> None:
        worker.draining = True
        worker.give_back_unstarted()
        self._finisher_ticker.wake()
        if not await self._wait_idle(worker, self.settings.grace):
            log.warning("returning %d jobs that are still running", worker.slots.count_running())
            worker.stop_running("shutdown")
            await self._wait_idle(worker, self.settings.kill_grace + 2, interruptible=False)
        with contextlib.suppress(Exception):
            async with asyncio.timeout(10):
                await self._finisher.flush()

    async def _wait_idle(self, worker: Worker, seconds: float, interruptible: bool = True) -> bool:
        end = time.monotonic() + seconds
        while worker.slots.count_running() or self._finisher.pending:
            if time.monotonic() >= end or (interruptible and self._stop_now.is_set()):
                return False
            await asyncio.sleep(0.02)
        return True

    async def _stop_runners(self) -> None:
        runners, self._runners = self._runners, []
        for runner in runners:
            await runner.stop()
        watch_overdue(None)
        if hasattr(self, "_effects_database"):
            await self._effects_database.close()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Node]:
        await self.start()
        try:
            yield self
        finally:
            await self.stop()
