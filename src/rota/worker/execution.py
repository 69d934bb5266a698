"""The parts of a node that take a claimed job to its finished row; see `rota.runtime.attempts`.

A worker has one, and feeds it from the claim loop; `rota.testing` has one, and feeds it one job at a
time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from rota.app import App
from rota.context import ErrorHook
from rota.lib import capture, tracing
from rota.runtime.attempts import Verdicts
from rota.runtime.clock import DatabaseClock
from rota.store.database import Database
from rota.store.logs import LogStore
from rota.store.work import WorkStore
from rota.task import Task
from rota.worker.effects import Effects
from rota.worker.failure_log import FailureLog
from rota.worker.finisher import Finisher
from rota.worker.log_writer import LogWriter
from rota.worker.outcomes import Outcomes
from rota.worker.runners.base import Runner
from rota.worker.runners.loop import LoopRunner
from rota.worker.runners.process import ProcessRunner
from rota.worker.runners.reference import reference_to
from rota.worker.runners.thread import ThreadRunner
from rota.worker.starter import Starter, Trust


class Execution:
    def __init__(
        self, app: App, database: Database, lease: Trust, tasks: Mapping[str, Task[..., Any]],
        *, clock: DatabaseClock | None = None, more_is_coming: Callable[[], bool] = lambda: False,
        error_hooks: Sequence[ErrorHook] | None = None,
    ) -> None:  # fmt: skip
        settings = app.settings
        self._app = app
        self._tasks = tasks
        self._lease = lease
        self._hooks = app.error_hooks if error_hooks is None else error_hooks
        self.store = WorkStore(database)
        self.verdicts = Verdicts(lease.node_id, settings.max_crashes)
        self.finisher = Finisher(self.store, self.verdicts, more_is_coming)
        self.finisher.clock = clock
        self.logs = LogWriter(LogStore(database), settings, clock, self._node_id)
        self.finisher.logs = self.logs
        self.outcomes = Outcomes(tasks, self.finisher)
        self.starter = Starter(self.store, tasks, lease, self.outcomes)
        # Handlers' own transactions last as long as handlers do, and must not hold up the queue's.
        patient = settings.replace(
            pool_size=max(2, min(settings.concurrency, 20)), statement_timeout=3600.0
        )
        self._effects_database = database.sibling(patient)
        self._effects = Effects(
            self._effects_database, settings, self.finisher, self._node_id, lambda: lease.trusted
        )
        self.outcomes.observers.append(self._effects.attempt_ended)
        self.outcomes.observers.append(FailureLog(self._hooks).ended)
        self.runners: dict[str, Runner] = {}
        self._capturing = False

    def _node_id(self) -> UUID:
        return self._lease.node_id

    async def start(self, *, processes: bool = True) -> None:
        """Open connections and start the runners that the tasks need.

        Without `processes`, what would run in a child process runs in a thread.
        """
        await self._effects_database.open()
        self._make_runners(processes)
        tracing.look()
        capture.install()
        self._capturing = True
        for runner in self.runners.values():
            await runner.start()

    def _make_runners(self, processes: bool) -> None:
        settings, done, tasks = self._app.settings, self.outcomes.done, self._tasks
        needed = {task.runner for task in tasks.values()}
        book = self.logs if settings.log_bytes else None
        self.loop = loop = LoopRunner(tasks, settings.concurrency, settings.max_result_bytes, done)
        loop.desk, loop.transact, loop.book = self._effects, self._effects.transact, book
        loop.error_hooks = self._hooks
        self.runners["loop"] = loop
        if "thread" in needed or ("process" in needed and not processes):
            threads = ThreadRunner(tasks, settings.threads, settings, done)
            threads.on_call, threads.book = self._effects.answer, book
            threads.error_hooks = self._hooks
            self.runners["thread"] = threads
            if not processes:
                self.runners["process"] = threads
        if "process" in needed and processes:
            children = ProcessRunner(reference_to(self._app), settings.processes, settings, done)
            children.on_call, children.book = self._effects.answer, book
            self.runners["process"] = children

    def forget(self) -> None:
        """Forget everything that was held: this node was declared dead, and has a new identity."""
        self.outcomes.forget()
        self.logs.forget()
        self.verdicts.node = self._lease.node_id

    async def flush(self) -> None:
        """Write all outcomes and log lines."""
        await self.finisher.flush()
        await self.logs.flush()

    async def stop(self) -> None:
        runners, self.runners = self.runners, {}
        for runner in runners.values():
            await runner.stop()
        if self._capturing:
            capture.uninstall()
            self._capturing = False
        await self._effects_database.close()
