"""Runs coroutines on the event loop.

Protocol. What is ready is taken by a *hand*, an asyncio task that steps one handler after the other for
as long as they end without waiting. One that waits keeps the hand for itself until it ends, and another
hand takes over what is ready. So whatever can be shared by way of a task (a cancellation, a session, a
time limit) is a job's own, while a handler that never waits costs neither a task nor a turn of the loop.
Each handler has a context of its own, made from the one that this runner was made in: it inherits
nothing from the job before it.

Each job is reported exactly once, whatever its handler does. A stop is remembered on the work and then
cancels the hand that is the job's own: what counts is the reason, not the CancelledError; but a handler
that ends in success before it stops has succeeded. A handler that swallows its cancellation is cancelled
again with every look. Timeouts are found by looking over what runs, which is never more than the node's
slots, instead of setting a timer per job.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from time import monotonic
from types import CodeType
from typing import Any

from rota.context import Context, Desk, ErrorHook, JobInfo
from rota.errors import JobStopped
from rota.lib import tracing
from rota.lib.capture import current
from rota.model import Guarantee, Outcome
from rota.runtime.work import LogBook, StopReason, Work
from rota.task import Task
from rota.worker.runners.base import Done
from rota.worker.runners.failures import failure_outcome, stop_message, stopped_outcome
from rota.worker.runners.hooks import call_hooks
from rota.worker.runners.results import encode_result

_LOOK_EVERY = 0.05
_SLICE = 0.001  # seconds after which a hand lets others have the loop
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
        self.error_hooks: Sequence[ErrorHook] = ()
        # For a handler that blocks the loop, and so the service that looks for such works.
        self.running: Callable[[], Iterable[Work]] = lambda: ()
        self.over_maximum: Callable[[Work, float], bool] = lambda work, now: False
        self._watched: dict[Work, None] = {}  # what has a timeout, or was asked to stop
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._ready: deque[Work] = deque()
        self._hand: asyncio.Task[None] | None = None  # the one that takes what is ready
        self._looking: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        pass

    def capacity(self) -> int:
        return self._size

    def run(self, work: Work) -> None:
        self._ready.append(work)
        if work.timeout is not None or work.heartbeat_timeout is not None:
            self._watch(work)
        if self._hand is None:
            self._reach_out()

    def _reach_out(self) -> None:
        # asyncio.Task itself, named: half the cost of loop.create_task, which makes up a name.
        self._hand = asyncio.Task(
            self._take(), loop=self._loop, name="rota-loop", context=self._context.copy()
        )

    def _let_go(self, hand: asyncio.Task[Any]) -> None:
        """This hand takes nothing more: the next one does, if there is something to take."""
        if self._hand is hand:
            self._hand = None
            if self._ready:
                self._reach_out()

    async def _take(self) -> None:
        hand = asyncio.current_task()
        assert hand is not None
        ready, pause_at = self._ready, monotonic() + _SLICE
        try:
            # Who was asked to cancel something that is over by now would cancel the wrong job.
            while ready and not hand.cancelling():
                work = ready.popleft()
                rest = self._begin(work, hand)
                if rest is not None:
                    self._let_go(hand)
                    self._end(work, await rest)
                    return
                if monotonic() > pause_at:
                    hand.set_name("rota-loop")
                    await asyncio.sleep(0)
                    pause_at = monotonic() + _SLICE
        finally:
            self._let_go(hand)

    def _begin(self, work: Work, hand: asyncio.Task[Any]) -> _GoOn | None:
        """Runs it to its end, or until it waits: then comes back what is left of it."""
        task = self._tasks[work.task]
        hand.set_name(task.name)
        work.handle = hand
        context = self._context.copy()
        attempt = self._attempt(work, task)
        try:
            return _GoOn(context, attempt, context.run(attempt.send, None))
        except StopIteration as end:
            self._end(work, end.value)
            return None

    async def _attempt(self, work: Work, task: Task[..., Any]) -> Outcome:
        work.started = monotonic()
        work.book = self.book
        current.set(work)
        if tracing.active:
            tracing.begin(work)
            tracing.enter(work)
        try:
            if work.stopping is not None:
                return stopped_outcome(work.stopping, "stopped before it began")
            if work.guarantee is Guarantee.EXACTLY_ONCE and self.transact is not None:
                return await self.transact(
                    work, lambda connection: self._call(work, task, connection)
                )
            if task.takes_context:
                return await self._call(work, task, None)
            value = await task.call(work.payload, None)
            return _SUCCEEDED if value is None else encode_result(value, self._max_result_bytes)
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its outcome
            return self._judge(work, error)

    async def _call(self, work: Work, task: Task[..., Any], connection: Any) -> Outcome:
        assert self.desk is not None
        context = Context(job_info(work), self.desk, connection)
        context._stopping = lambda: work.stopping is not None
        if work.heartbeat_timeout is not None:
            context._pulse = work.note_life
        return encode_result(await task.call(work.payload, context), self._max_result_bytes)

    def _judge(self, work: Work, error: BaseException) -> Outcome:
        if work.stopping is not None and isinstance(error, asyncio.CancelledError | JobStopped):
            return _stopped(work, error)
        if isinstance(error, JobStopped):
            # The watchdog ended it for blocking the loop beyond its time.
            work.stopping = work.due_stop(monotonic()) or ("maximum" if work.maximum else "timeout")
            return _stopped(work, error)
        if self.error_hooks:
            call_hooks(self.error_hooks, job_info(work), error)
        return failure_outcome(error)

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
        if work.handle is not None:  # else it is looked at before its first step
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
        now = monotonic()
        for work in list(self._watched):
            if work.stopping is not None:
                self._cancel(work)
            elif (reason := work.due_stop(now)) is not None:
                work.stopping = reason
                self._cancel(work)
        if self._watched:
            self._looking = self._loop.call_later(_LOOK_EVERY, self._look)

    def overdue_code(self, current: asyncio.Task[Any] | None) -> CodeType | None:
        """The code of the running task's function, if its job is over its time. For the watchdog."""
        now = monotonic()
        for work in (*self._watched, *self.running()):
            if work.handle is current and (
                work.stopping is not None or work.due_stop(now) or self.over_maximum(work, now)
            ):
                return getattr(self._tasks[work.task].function, "__code__", None)
        return None


class _GoOn:
    """What is left of a coroutine that waits: awaited, it goes on in its own context to its end."""

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
    seen = failure_outcome(error).failure
    return stopped_outcome(work.stopping, stop_message(work), seen.traceback if seen else "")
