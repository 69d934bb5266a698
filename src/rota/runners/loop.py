"""Runs coroutines on the event loop, each as a task of its own.

Protocol. `run` makes a task around the handler; the wrapper reports exactly once, whatever the handler
does. A stop is remembered on the work and then cancels the task: what counts is the reason, not the
CancelledError; but a handler that ends in success before it stops has succeeded. A handler that
swallows its cancellation is cancelled again with every look. Timeouts are found by looking over what
runs, which is never more than the node's slots, instead of setting a timer per job.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from types import CodeType
from typing import Any

from rota import tracing
from rota.capture import current
from rota.context import Context, Desk, JobInfo
from rota.errors import JobStopped
from rota.model import Guarantee, Outcome
from rota.runners.base import Done, LogBook, StopReason, Work
from rota.runners.failures import failure_outcome, stopped_outcome
from rota.runners.results import encode_result
from rota.task import Task

_LOOK_EVERY = 0.05
_SUCCEEDED = Outcome.succeeded()

# Runs an exactly_once handler inside the transaction that also finishes its job.
Transact = Callable[[Work, Callable[[Any], Awaitable[Outcome]]], Awaitable[Outcome]]


class LoopRunner:
    def __init__(
        self, tasks: Mapping[str, Task[..., Any]], size: int, max_result_bytes: int, done: Done
    ) -> None:
        self._tasks = tasks
        self._size = size
        self._max_result_bytes = max_result_bytes
        self._done = done
        self.desk: Desk | None = None
        self.transact: Transact | None = None
        self.book: LogBook | None = None
        self._watched: dict[Work, None] = {}  # what has a timeout, or was asked to stop
        self._loop = asyncio.get_running_loop()
        self._looking: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        pass

    def capacity(self) -> int:
        return self._size

    def run(self, work: Work) -> None:
        task = self._tasks[work.task]
        # asyncio.Task itself, named: half the cost of loop.create_task, which makes up a name.
        work.handle = asyncio.Task(self._execute(work, task), loop=self._loop, name=task.name)
        if work.timeout is not None:
            self._watch(work)

    async def _execute(self, work: Work, task: Task[..., Any]) -> None:
        work.started = time.monotonic()
        work.book = self.book
        current.set(work)  # this task's context is its own
        if tracing.active:
            tracing.begin(work)
            tracing.enter(work)
        try:
            if work.stopping is not None:
                outcome = stopped_outcome(work.stopping, "stopped before it began")
            elif work.guarantee is Guarantee.EXACTLY_ONCE and self.transact is not None:
                outcome = await self.transact(
                    work, lambda connection: self._call(work, task, connection)
                )
            elif task.takes_context:
                outcome = await self._call(work, task, None)
            else:
                value = await task.call(work.payload, None)
                outcome = (
                    _SUCCEEDED if value is None else encode_result(value, self._max_result_bytes)
                )
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its outcome
            outcome = self._judge(work, error)
        self._end(work, outcome)

    async def _call(self, work: Work, task: Task[..., Any], connection: Any) -> Outcome:
        assert self.desk is not None
        context = Context(job_info(work), self.desk, connection)
        context._stopping = lambda: work.stopping is not None
        return encode_result(await task.call(work.payload, context), self._max_result_bytes)

    def _judge(self, work: Work, error: BaseException) -> Outcome:
        if work.stopping is not None and isinstance(error, asyncio.CancelledError | JobStopped):
            return _stopped(work, error)
        if isinstance(error, JobStopped):
            # The watchdog ended it for blocking the loop beyond its timeout.
            work.stopping = "timeout"
            return _stopped(work, error)
        return failure_outcome(error)

    def _end(self, work: Work, outcome: Outcome) -> None:
        if self._watched:
            self._watched.pop(work, None)
        # Its task's context holds the work: without this, only the garbage collector would part them.
        work.handle = None
        self._done(work, outcome)

    def stop_work(self, work: Work, reason: StopReason) -> None:
        if work.handle is not None and not work.handle.done() and work.stopping is None:
            work.stopping = reason
            self._watch(work)
            self._cancel(work)

    def _cancel(self, work: Work) -> None:
        # Not before its first step: cancelled then, the wrapper would never be entered.
        if work.started:
            work.handle.cancel()

    def withdraw(self, work: Work) -> bool:
        return False  # it starts what it is given at once

    async def stop(self) -> None:
        if self._looking is not None:
            self._looking.cancel()

    # -- timeouts

    def _watch(self, work: Work) -> None:
        self._watched[work] = None
        if self._looking is None:
            self._looking = self._loop.call_later(_LOOK_EVERY, self._look)

    def _look(self) -> None:
        self._looking = None
        now = time.monotonic()
        for work in list(self._watched):
            if work.stopping is not None:
                self._cancel(work)
            elif is_overdue(work, now):
                work.stopping = "timeout"
                self._cancel(work)
        if self._watched:
            self._looking = self._loop.call_later(_LOOK_EVERY, self._look)

    def overdue_code(self, current: asyncio.Task[Any] | None) -> CodeType | None:
        """The code of the running task's function, if its job is over its timeout. For the watchdog."""
        now = time.monotonic()
        for work in self._watched:
            if work.handle is current and (work.stopping is not None or is_overdue(work, now)):
                return getattr(self._tasks[work.task].function, "__code__", None)
        return None


def is_overdue(work: Work, now: float) -> bool:
    return work.timeout is not None and work.started > 0 and now - work.started >= work.timeout


def job_info(work: Work) -> JobInfo:
    return JobInfo(
        id=work.id,
        task=work.task,
        attempt=work.attempt,
        max_attempts=work.max_attempts,
        token=work.token,
        due_at=work.due_at,
        key=work.key,
        headers=work.decoded_headers(),
    )


def _stopped(work: Work, error: BaseException) -> Outcome:
    assert work.stopping is not None
    message = f"over its timeout of {work.timeout:g} s" if work.timeout else "stopped"
    seen = failure_outcome(error).failure
    return stopped_outcome(work.stopping, message, seen.traceback if seen else "")
