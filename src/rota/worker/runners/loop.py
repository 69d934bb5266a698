"""Runs coroutines on the event loop.

Protocol. Ready jobs are taken by a *driver*, an asyncio task that steps one handler after the other for
as long as they end without waiting. A handler that waits keeps the driver for itself until it ends, and
another driver takes over what is ready. So whatever belongs to a task (a cancellation, a session, a
time limit) belongs to one job, while a handler that never waits costs neither a task nor an iteration
of the loop. Each handler has a context of its own, made from the one in which this runner was made: it
inherits nothing from the job before it.

Each job is reported exactly once, whatever its handler does. A stop is recorded on the work and then
cancels the job's own driver: the reason counts, not the CancelledError. But a handler that returns has
succeeded, even after it was stopped: a timeout on record would be retried, and repeat what was done. A
handler that swallows its cancellation is cancelled again with every check. Timeouts are found by
checking what runs, which is never more than the node's slots, instead of setting a timer per job.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from time import monotonic
from types import CodeType
from typing import Any

from rota.context import Context, JobInfo
from rota.errors import JobStopped
from rota.lib import tracing
from rota.lib.capture import current
from rota.model import Guarantee, Outcome
from rota.runtime.work import StopReason, Work
from rota.task import Task
from rota.worker.runners import results
from rota.worker.runners.base import Channel, NodeParts, Runner
from rota.worker.runners.members import run_chunk

_SLICE = 0.001  # seconds after which a driver yields to other tasks of the loop
_SUCCEEDED = Outcome.succeeded()


class LoopRunner(Runner):
    def __init__(self, tasks: Mapping[str, Task[..., Any]], size: int, node: NodeParts) -> None:
        super().__init__(size, node)
        self._tasks = tasks
        self._max_result_bytes = node.settings.max_result_bytes
        # For a handler that blocks the loop, and with it the service that checks maximum run times.
        self.running: Callable[[], Iterable[Work]] = lambda: ()
        self.over_maximum: Callable[[Work, float], bool] = lambda work, now: False
        self._watched: dict[Work, None] = {}  # works with a timeout, or that were asked to stop
        self._context = contextvars.copy_context()
        self._ready: deque[Work] = deque()
        self._driver: asyncio.Task[None] | None = None  # the one that takes ready jobs

    def run(self, work: Work) -> None:
        self._ready.append(work)
        if work.timeout is not None or work.heartbeat_timeout is not None:
            self._watch(work)
        if self._driver is None:
            self._start_driver()

    def _start_driver(self) -> None:
        # asyncio.Task itself, named: half the cost of loop.create_task, which makes up a name.
        self._driver = asyncio.Task(
            self._drive(), loop=self._loop, name="rota-loop", context=self._context.copy()
        )

    def _release(self, driver: asyncio.Task[Any]) -> None:
        """Let another driver take ready jobs: this one takes no more."""
        if self._driver is driver:
            self._driver = None
            if self._ready:
                self._start_driver()

    async def _drive(self) -> None:
        driver = asyncio.current_task()
        assert driver is not None
        ready, pause_at = self._ready, monotonic() + _SLICE
        try:
            # A cancellation that arrives after its job has ended must not reach the next one.
            while ready and not driver.cancelling():
                work = ready.popleft()
                rest = self._begin(work, driver)
                if rest is not None:
                    self._release(driver)
                    self._end(work, await rest)
                    return
                if monotonic() > pause_at:
                    driver.set_name("rota-loop")
                    await asyncio.sleep(0)
                    pause_at = monotonic() + _SLICE
        finally:
            self._release(driver)

    def _begin(self, work: Work, driver: asyncio.Task[Any]) -> _Suspended | None:
        """Run it to its end, or until it waits: then return the rest of it."""
        task = self._tasks[work.task]
        driver.set_name(task.name)
        work.handle = driver
        context = self._context.copy()
        attempt = self._attempt(work, task)
        try:
            return _Suspended(context, attempt, context.run(attempt.send, None))
        except StopIteration as end:
            self._end(work, end.value)
            return None

    async def _attempt(self, work: Work, task: Task[..., Any]) -> Outcome:
        work.started = monotonic()
        work.book = self._node.book
        current.set(work)
        if tracing.active:
            tracing.begin(work)
            tracing.enter(work)
        try:
            if work.stopping is not None:
                return results.stopped_outcome(work.stopping, "stopped before it began")
            if work.chunk is not None:
                context = Context(JobInfo.of(work), Channel(work, self._node.desk))
                hooks = self._node.error_hooks
                return await run_chunk(task, work.payload, context, self._max_result_bytes, hooks)
            if work.guarantee is Guarantee.EXACTLY_ONCE:
                return await self._node.desk.transact(
                    work, lambda connection: self._call(work, task, connection)
                )
            own = None
            if task.takes_context:
                own = Context(JobInfo.of(work), Channel(work, self._node.desk))
            value = await task.call(work.payload, own)
            return (
                _SUCCEEDED
                if value is None
                else results.encode_result(value, self._max_result_bytes)
            )
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its outcome
            return self._judge(work, error)

    async def _call(self, work: Work, task: Task[..., Any], connection: Any) -> Outcome:
        context = Context(JobInfo.of(work), Channel(work, self._node.desk), connection)
        return results.encode_result(await task.call(work.payload, context), self._max_result_bytes)

    def _judge(self, work: Work, error: BaseException) -> Outcome:
        outcome = results.failure_outcome(error)
        if isinstance(error, JobStopped) and work.stopping is None:
            # The watchdog ended it for blocking the loop for longer than it may run.
            work.stopping = work.due_stop(monotonic()) or ("maximum" if work.maximum else "timeout")
        if work.stopping is not None and isinstance(error, asyncio.CancelledError | JobStopped):
            return results.outcome_of_stop(work, outcome.failure)
        if self._node.error_hooks:
            results.call_hooks(self._node.error_hooks, JobInfo.of(work), error)
        return outcome

    def _end(self, work: Work, outcome: Outcome) -> None:
        if self._watched:
            self._watched.pop(work, None)
        work.handle = None
        self._done(work, outcome)

    def stop_work(self, work: Work, reason: StopReason) -> None:
        if work.stopping is None:
            work.stopping = reason
            self._watch(work)
            self._cancel(work)

    def _cancel(self, work: Work) -> None:
        if work.handle is not None:  # else it is checked before its first step
            work.handle.cancel()

    # -- timeouts

    def _watch(self, work: Work) -> None:
        self._watched[work] = None
        self._check_later()

    def _check(self, now: float) -> None:
        for work in list(self._watched):
            if work.stopping is None:
                work.stopping = work.due_stop(now)
            if work.stopping is not None:
                self._cancel(work)
        if self._watched:
            self._check_later()

    def overdue_code(self, current: asyncio.Task[Any] | None) -> CodeType | None:
        """Return the code of the running task's function if its job is over its time: see `Watchdog`."""
        now = monotonic()
        for work in (*self._watched, *self.running()):
            if work.handle is current and (
                work.stopping is not None or work.due_stop(now) or self.over_maximum(work, now)
            ):
                return getattr(self._tasks[work.task].function, "__code__", None)
        return None


class _Suspended:
    """A coroutine that waits. Awaited, it continues to its end in its own context."""

    __slots__ = ("_attempt", "_context", "_waits_for")

    def __init__(
        self, context: contextvars.Context, attempt: Coroutine[Any, Any, Outcome], waits_for: Any
    ) -> None:
        self._context = context
        self._attempt = attempt
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, Outcome]:
        context, attempt, waits_for = self._context, self._attempt, self._waits_for
        del self._waits_for
        try:
            while True:
                try:
                    answer = yield waits_for
                except GeneratorExit:
                    context.run(attempt.close)
                    raise
                except BaseException as error:  # noqa: BLE001 - it is the handler's to deal with
                    waits_for = context.run(attempt.throw, error)
                else:
                    waits_for = context.run(attempt.send, answer)
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome
