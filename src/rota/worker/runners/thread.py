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
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rota.config import Settings
from rota.context import ErrorHook, SyncContext
from rota.errors import JobStopped
from rota.lib import tracing
from rota.lib.capture import current
from rota.model import Guarantee, Outcome
from rota.runtime.work import LogBook, StopReason, Work
from rota.store.sync_effects import SyncEffects, TransactionTerms
from rota.task import Task
from rota.worker.runners.base import Done, NodeCall
from rota.worker.runners.failures import failure_outcome, stop_message, stopped_outcome
from rota.worker.runners.hooks import call_hooks
from rota.worker.runners.loop import job_info
from rota.worker.runners.results import encode_result

_CHECK_EVERY = 0.05


class _Attempt:
    """One work on its thread. What is decided first, its end or its abandonment, counts."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.thread: threading.Thread | None = None
        self.asked_at = 0.0
        self.reported = False


class ThreadChannel:
    """Passes calls of a handler in a thread to its node."""

    def __init__(self, work: Work, loop: asyncio.AbstractEventLoop, node_call: NodeCall) -> None:
        self._work = work
        self._loop = loop
        self._node_call = node_call

    @property
    def cancelled(self) -> bool:
        return self._work.stopping is not None

    def heartbeat(self) -> None:
        self._work.note_life()

    def tell(self, name: str, body: bytes) -> None:
        self._work.note_life()
        asyncio.run_coroutine_threadsafe(self._node_call(self._work, name, body), self._loop)

    def call(self, name: str, body: bytes) -> bytes:
        self._work.note_life()
        answer = self._node_call(self._work, name, body)
        return asyncio.run_coroutine_threadsafe(answer, self._loop).result()


class ThreadRunner:
    def __init__(
        self, tasks: Mapping[str, Task[..., Any]], size: int, settings: Settings, done: Done
    ) -> None:
        self._tasks = tasks
        self._size = size
        self._settings = settings
        self._done = done
        self.on_call: NodeCall | None = None
        self.book: LogBook | None = None
        self.error_hooks: Sequence[ErrorHook] = ()
        self._loop = asyncio.get_running_loop()
        self._backlog: deque[Work] = deque()
        self._attempts: dict[Any, _Attempt] = {}
        self._checking: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        pass

    def capacity(self) -> int:
        return self._size

    def run(self, work: Work) -> None:
        if len(self._attempts) >= self._size:
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
        if self._checking is None:
            self._checking = self._loop.call_later(_CHECK_EVERY, self._check)

    def _execute(self, attempt: _Attempt) -> None:
        work = attempt.work
        work.book = self.book
        current.set(work)  # a new thread's context is empty, and its own
        if tracing.active:
            tracing.begin(work)
            tracing.enter(work)
        try:
            assert self.on_call is not None
            channel = ThreadChannel(work, self._loop, self.on_call)
            if work.guarantee is Guarantee.EXACTLY_ONCE:
                outcome = self._call_in_transaction(work, channel)
            else:
                outcome = self._call(work, channel, None)
        except JobStopped:
            outcome = stopped_outcome(work.stopping or "cancel", stop_message(work))
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its outcome
            outcome = failure_outcome(error)
            if self.error_hooks:
                call_hooks(self.error_hooks, job_info(work), error)
        with contextlib.suppress(RuntimeError):  # the node is gone; its jobs are reaped
            self._loop.call_soon_threadsafe(self._end, attempt, outcome)

    def _call(self, work: Work, channel: ThreadChannel, connection: Any) -> Outcome:
        context = SyncContext(job_info(work), channel, connection)
        value = self._tasks[work.task].call(work.payload, context)
        return encode_result(value, self._settings.max_result_bytes)

    def _call_in_transaction(self, work: Work, channel: ThreadChannel) -> Outcome:
        """Commit what the handler writes together with the end of its job."""
        terms = msgspec.json.decode(channel.call("transaction", b"null"), type=TransactionTerms)
        effects = SyncEffects()
        try:
            with effects.transaction(terms, work.id, work.token) as connection:
                outcome = self._call(work, channel, connection)
                ran = time.monotonic() - work.started
                effects.finish(terms, work.id, work.token, ran, outcome.result)
            return outcome
        finally:
            effects.close()

    def _end(self, attempt: _Attempt, outcome: Outcome) -> None:
        self._attempts.pop(attempt.work.id, None)
        self._report(attempt, outcome)
        if self._backlog and len(self._attempts) < self._size:
            self._begin(self._backlog.popleft())

    def _report(self, attempt: _Attempt, outcome: Outcome) -> None:
        if not attempt.reported:
            attempt.reported = True
            self._done(attempt.work, outcome)

    def stop_work(self, work: Work, reason: StopReason) -> None:
        if self.withdraw(work):
            self._done(work, stopped_outcome(reason, "stopped before it began"))
        elif (attempt := self._attempts.get(work.id)) and work.stopping is None:
            work.stopping = reason
            attempt.asked_at = time.monotonic()
            _raise_in(attempt.thread)

    def withdraw(self, work: Work) -> bool:
        try:
            self._backlog.remove(work)
        except ValueError:
            return False
        return True

    def _check(self) -> None:
        now = time.monotonic()
        for attempt in list(self._attempts.values()):
            work = attempt.work
            if work.stopping is None and (reason := work.due_stop(now)) is not None:
                self.stop_work(work, reason)
            elif work.stopping and now - attempt.asked_at >= self._settings.kill_grace:
                message = f"{stop_message(work)}; its thread could not be stopped and goes on"
                self._report(attempt, stopped_outcome(work.stopping, message))
        self._checking = (
            self._loop.call_later(_CHECK_EVERY, self._check) if self._attempts else None
        )

    async def stop(self) -> None:
        if self._checking is not None:
            self._checking.cancel()


def _raise_in(thread: threading.Thread | None) -> None:
    if thread is not None and thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident), ctypes.py_object(JobStopped)
        )
