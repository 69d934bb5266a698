"""The parts of a node that take a claimed job to its finished row; see `rota.runtime.attempts`.

A worker has one, and feeds it from the claim loop; `rota.testing` has one, and feeds it one job at a
time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rota import lifecycle
from rota.app import App
from rota.context import ErrorHook
from rota.lib import capture, tracing
from rota.runtime.attempts import Verdicts
from rota.runtime.heartbeat import Lease
from rota.store.database import Database
from rota.store.logs import LogStore
from rota.store.work import WorkStore
from rota.task import Task
from rota.worker.effects import Effects
from rota.worker.finisher import Finisher
from rota.worker.functions import Functions
from rota.worker.log_writer import LogWriter
from rota.worker.outcomes import FailureLog, Outcomes
from rota.worker.runners.base import NodeParts, Runner
from rota.worker.runners.loop import LoopRunner
from rota.worker.runners.process import ProcessRunner
from rota.worker.runners.reference import reference_to
from rota.worker.runners.thread import ThreadRunner
from rota.worker.starter import Starter


class Execution:
    def __init__(
        self, app: App, database: Database, lease: Lease, tasks: Mapping[str, Task[..., Any]],
        error_hooks: Sequence[ErrorHook],
    ) -> None:  # fmt: skip
        settings = app.settings
        self._app = app
        self._tasks = tasks
        self._lease = lease
        self.store = WorkStore(database)
        self.store.sparing = lambda: lease.sparing
        self._verdicts = Verdicts(lease.node_id, settings.max_crashes)
        self.logs = LogWriter(LogStore(database), settings, lease)
        self.finisher = Finisher(self.store, self._verdicts, lease.clock, self.logs)
        self.outcomes = Outcomes(tasks, self.finisher)
        self.starter = Starter(self.store, tasks, lease, self.outcomes)
        # Handlers' own transactions last as long as handlers do, and must not hold up the queue's.
        patient = settings.replace(
            pool_size=max(2, min(settings.concurrency, 20)), statement_timeout=3600.0
        )
        self._effects_database = database.sibling(patient)
        functions = Functions(database, lease)
        effects = Effects(
            self._effects_database, settings, self.finisher, lease, functions, app.state
        )
        self.permits = effects.permits
        self.outcomes.observers.append(effects.attempt_ended)
        self.outcomes.failure_observers.append(FailureLog(error_hooks).ended)
        book = self.logs if settings.log_bytes else None
        self._parts = NodeParts(settings, self.outcomes.done, effects, book, error_hooks)
        self.runners: dict[str, Runner] = {}
        self._capturing = False
        self._lifespans = lifecycle.Lifespans()

    async def start(self, *, processes: bool = True) -> None:
        """Open connections, begin the app's lifespans, and start the runners that the tasks need.

        Without `processes`, what would run in a child process runs in a thread.
        """
        app = self._app
        app.check_scopes()
        await self._effects_database.open()
        # Threads that stand in for child processes have this process's state.
        children = () if processes else app.child_lifespans
        await self._lifespans.begin([*app.lifespans, *children], app.state)
        self._make_runners(processes)
        tracing.look()
        capture.install()
        self._capturing = True
        for runner in self.runners.values():
            await runner.start()

    def _make_runners(self, processes: bool) -> None:
        settings, tasks = self._app.settings, self._tasks
        needed = {task.runner for task in tasks.values()}
        self.loop = LoopRunner(tasks, settings.concurrency, self._parts)
        self.runners["loop"] = self.loop
        if "thread" in needed or ("process" in needed and not processes):
            self.runners["thread"] = ThreadRunner(tasks, settings.threads, self._parts)
        if "process" in needed and processes:
            reference = reference_to(self._app)
            self.runners["process"] = ProcessRunner(
                reference, settings.processes, self._parts,
                close_seconds=settings.kill_grace if self._app.child_lifespans else None,
            )  # fmt: skip
        elif "process" in needed:
            self.runners["process"] = self.runners["thread"]

    def forget(self) -> None:
        """Forget everything that was held: this node was declared dead, and has a new identity."""
        self.outcomes.forget()
        self.logs.forget()
        self._verdicts.node = self._lease.node_id

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
        try:
            await self._lifespans.end(self._app.settings.kill_grace)
        finally:
            await self._effects_database.close()
