"""Runs plain functions in threads, for those who ask for it.

Lighter than a process, and weaker: a stop is raised inside the function between two bytecodes, which
reaches Python code but not a call that blocks in C, and a crash takes the node down. A function that
can't be stopped is reported as stopped once its grace is over; its thread stays busy until it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

import msgspec

from rota.context import JobInfo, SyncContext
from rota.errors import JobStopped
from rota.lib import tracing
from rota.lib.capture import current
from rota.model import Guarantee, Outcome
from rota.runtime.work import StopReason, Work
from rota.store.sync_effects import SyncEffects
from rota.task import Task
from rota.worker.runners import results
from rota.worker.runners.base import Channel, NodeParts, Runner
from rota.worker.runners.members import run_chunk_sync


class _Attempt(msgspec.Struct, eq=False):
    """One work on its thread. It is reported once: at its end, or when it could not be stopped."""

    work: Work
    thread: threading.Thread | None = None
    asked_at: float = 0.0  # monotonic; when it was asked to stop
    reported: bool = False


class _Channel(Channel):
    """Passes calls of a handler in a thread to its node."""

    _loop: asyncio.AbstractEventLoop

    def progress(self, body: bytes) -> None:
        self._loop.call_soon_threadsafe(super().progress, body)

    def call(self, name: str, body: bytes) -> Any:
        answer = super().call(name, body)
        return asyncio.run_coroutine_threadsafe(answer, self._loop).result()


class ThreadRunner(Runner):
    def __init__(self, tasks: Mapping[str, Task[..., Any]], size: int, node: NodeParts) -> None:
        super().__init__(size, node)
        self._tasks = tasks
        self._backlog: deque[Work] = deque()
        self._attempts: dict[Any, _Attempt] = {}

    def run(self, work: Work) -> None:
        if len(self._attempts) >= self.size:
            self._backlog.append(work)
        else:
            self._begin(work)

    def _begin(self, work: Work) -> None:
        attempt = self._attempts[work.id] = _Attempt(work)
        work.started = time.monotonic()
        attempt.thread = threading.Thread(
            target=self._execute, args=(attempt,), name=f"rota-job-{work.task}", daemon=True
        )
        attempt.thread.start()
        self._check_later()

    def _execute(self, attempt: _Attempt) -> None:
        work = attempt.work
        work.book = self._node.book
        current.set(work)  # a new thread's context is empty, and its own
        if tracing.active:
            tracing.begin(work)
            tracing.enter(work)
        try:
            outcome = self._call(work)
        except JobStopped:
            work.stopping = work.stopping or "cancel"
            outcome = results.outcome_of_stop(work)
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its outcome
            outcome = results.failure_outcome(error)
            if self._node.error_hooks:
                results.call_hooks(self._node.error_hooks, JobInfo.of(work), error)
        with contextlib.suppress(RuntimeError):  # the node is gone; its jobs are reaped
            self._loop.call_soon_threadsafe(self._end, attempt, outcome)

    def _call(self, work: Work) -> Outcome:
        task, limit = self._tasks[work.task], self._node.settings.max_result_bytes
        context = SyncContext(JobInfo.of(work), _Channel(work, self._node.desk, self._loop))
        if work.chunk is not None:
            return run_chunk_sync(task, work.payload, context, limit, self._node.error_hooks)
        if work.guarantee is not Guarantee.EXACTLY_ONCE:
            return results.encode_result(task.call(work.payload, context), limit)
        with contextlib.closing(SyncEffects()) as effects:
            return results.call_in_transaction(effects, task, work.payload, context, limit)

    def _end(self, attempt: _Attempt, outcome: Outcome) -> None:
        self._attempts.pop(attempt.work.id, None)
        self._report(attempt, outcome)
        if self._backlog and len(self._attempts) < self.size:
            self._begin(self._backlog.popleft())

    def _report(self, attempt: _Attempt, outcome: Outcome) -> None:
        if not attempt.reported:
            attempt.reported = True
            self._done(attempt.work, outcome)

    def stop_work(self, work: Work, reason: StopReason) -> None:
        if work in self._backlog:
            self._backlog.remove(work)
            self._done(work, results.stopped_outcome(reason, "stopped before it began"))
        elif (attempt := self._attempts.get(work.id)) and work.stopping is None:
            work.stopping = reason
            attempt.asked_at = time.monotonic()
            if attempt.thread is not None and attempt.thread.ident is not None:
                ident = ctypes.c_ulong(attempt.thread.ident)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(JobStopped))

    def _check(self, now: float) -> None:
        for attempt in list(self._attempts.values()):
            work = attempt.work
            if work.stopping is None and (reason := work.due_stop(now)) is not None:
                self.stop_work(work, reason)
            elif work.stopping and now - attempt.asked_at >= self._node.settings.kill_grace:
                note = "; its thread could not be stopped and still runs"
                self._report(attempt, results.outcome_of_stop(work, note=note))
        if self._attempts:
            self._check_later()
