"""The operations of a durable function on its context: steps, calls, sleeps and waits for signals."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Generator
from time import monotonic
from typing import Any, Generic, TypeVar

import msgspec

from rota.core.codec import ResultReader, encode_hook
from rota.core.lifecycle import bounded_delay, may_retry, retry_delay
from rota.core.workflow.model import CheckpointKind, StepState
from rota.durable import wire
from rota.durable.branches import FailedAt, fails_at
from rota.durable.replay import Replay
from rota.durable.wire import Checkpoint, NewCheckpoint
from rota.errors import (
    CallFailed,
    Fatal,
    InvalidArguments,
    RetryAfter,
    RunCancelled,
    StepFailed,
    WaitTimedOut,
)
from rota.lib import tracing
from rota.lib.capture import message_of, storable
from rota.lib.ids import unit
from rota.model import Failure, Retry
from rota.task import Task

T = TypeVar("T")

_LOCAL_SECONDS = 1.0  # shorter waits keep the worker's slot
_MOST_MESSAGE = 2_000


class Operation(Generic[T]):
    """Something that a durable function does: await it, or give it to ``ctx.gather`` or ``ctx.race``.

    It has its place in the code from the moment at which it is made, and happens when it is awaited.
    """

    kind: CheckpointKind

    def __init__(self, replay: Replay, name: str, digest: str | None = None) -> None:
        self.replay = replay
        self.name = replay.name_of(name)
        self.digest = digest

    def __await__(self) -> Generator[Any, Any, T]:
        return self._perform().__await__()

    async def _perform(self) -> T:
        found = self.replay.find(self.name, self.kind, self.digest)
        self.replay.unseen.add(self.name)
        if found is None:
            self.replay.check_new(self.name, self.kind)
            await self.replay.check_cancelled(self.name, self.kind)
            found = await self._begin()
        while not found.state.is_final:
            found = await self._go_on(found)
        if found.state is StepState.SUCCEEDED:
            self.replay.unseen.discard(self.name)
            return self._value(found)
        if found.state is StepState.CANCELLED:
            self.replay.cancel_found()
            raise RunCancelled("the run is being cancelled")
        raise fails_at(self._error(found), FailedAt(found.number))

    async def _begin(self) -> Checkpoint:
        raise NotImplementedError

    async def _go_on(self, found: Checkpoint) -> Checkpoint:
        return await self.replay.wait(found)

    def _value(self, found: Checkpoint) -> T:
        value: T = msgspec.json.decode(found.result)
        return value

    def _error(self, found: Checkpoint) -> Exception:
        return StepFailed(self.name, found.error or Failure("Unknown", "no error was recorded"))

    def _seconds_left(self, found: Checkpoint) -> float:
        if found.wake_at is None:
            return 0.0
        return (found.wake_at - self.replay.now()).total_seconds()


class StepOperation(Operation[T]):
    kind = CheckpointKind.STEP

    def __init__(
        self, replay: Replay, name: str, work: Callable[[], Any], returns: ResultReader, retry: Retry,
        digest: str | None, limit: int,
    ) -> None:  # fmt: skip
        super().__init__(replay, name, digest)
        self._work = work
        self._reader = returns
        self._retry = retry
        self._limit = limit

    async def _begin(self) -> Checkpoint:
        # What the function knows, such as a time, may be in the step's arguments: it is the same if the
        # step is done again.
        await self.replay.flush_notes()
        return await self._try(self.replay.make_room(), 1)

    async def _go_on(self, found: Checkpoint) -> Checkpoint:
        """Wait for the time of the next try, and try again."""
        await self.replay.check_begun(found)
        left = self._seconds_left(found)
        if left > _LOCAL_SECONDS:
            found = await self.replay.wait(found)
            if self._seconds_left(found) > _LOCAL_SECONDS:
                return found
        elif left > 0:
            await asyncio.sleep(left)
        return await self._try(found.number, found.attempt + 1)

    async def _try(self, number: int, attempt: int) -> Checkpoint:
        new = NewCheckpoint(
            number=number, kind=self.kind, state=StepState.SUCCEEDED, name=self.name,
            digest=self.digest, attempt=attempt,
        )  # fmt: skip
        began = monotonic()
        try:
            with tracing.step(self.name, attempt):
                value = self._work()
                if inspect.isawaitable(value):
                    value = await value
        except Exception as error:  # noqa: BLE001 - it is recorded, and raised into the function
            new.error = _failure(error)
            new.state = StepState.FAILED
            if attempt < self._retry.max_attempts and _is_worth_a_try(
                self._retry, error, new.error
            ):
                new.state = StepState.WAITING
                new.delay = self._delay(error, attempt)
        else:
            try:
                new.result = self._encoded(value)
            except Exception as error:  # noqa: BLE001 - user types may raise anything
                # It has happened: trying again would repeat it.
                new.error, new.state = _failure(error), StepState.FAILED
        new.ran = monotonic() - began
        return await self.replay.record(new)

    def _delay(self, error: Exception, attempt: int) -> float:
        """Return the seconds before the next try: what the step asked for, or what its policy says."""
        if isinstance(error, RetryAfter):
            return bounded_delay(error.seconds)
        return retry_delay(self._retry, attempt, unit())

    def _encoded(self, value: Any) -> msgspec.Raw:
        encoded = msgspec.json.encode(value, enc_hook=encode_hook)
        if len(encoded) > self._limit:
            raise InvalidArguments(
                f"the result has {len(encoded):,} bytes, over max_result_bytes ({self._limit:,}): "
                "store it elsewhere and return a reference"
            )
        return msgspec.Raw(encoded)

    def _value(self, found: Checkpoint) -> T:
        # Also at the first time read from what is stored: the same value as at every replay.
        value: T = self._reader.read(msgspec.json.decode(found.result))
        return value


class JobCall(Operation[T]):
    kind = CheckpointKind.CALL

    def __init__(
        self, replay: Replay, name: str, task: Task[..., T], child: Callable[[], Any],
        digest: str | None,
    ) -> None:  # fmt: skip
        super().__init__(replay, name, digest)
        self._child = child
        self._reader = task.result_reader

    async def _begin(self) -> Checkpoint:
        return await _begin_call(self, wire.CALL, self._child())

    def _value(self, found: Checkpoint) -> T:
        value: T = self._reader.read(msgspec.json.decode(found.result))
        return value

    def _error(self, found: Checkpoint) -> Exception:
        return CallFailed(self.name, found.error or Failure("Unknown", "no error was recorded"))


class RunCall(Operation[Any]):
    kind = CheckpointKind.RUN

    def __init__(
        self, replay: Replay, name: str, child: Callable[[], Awaitable[Any]], digest: str | None,
        reader: ResultReader | None,
    ) -> None:  # fmt: skip
        super().__init__(replay, name, digest)
        self._child = child
        self._reader = reader  # of a durable function's result

    def _value(self, found: Checkpoint) -> Any:
        value = msgspec.json.decode(found.result)
        return value if self._reader is None else self._reader.read(value)

    async def _begin(self) -> Checkpoint:
        return await _begin_call(self, wire.RUN, await self._child())

    def _error(self, found: Checkpoint) -> Exception:
        return CallFailed(self.name, found.error or Failure("Unknown", "no error was recorded"))


async def _begin_call(operation: Operation[Any], message: str, child: Any) -> Checkpoint:
    replay = operation.replay
    await replay.flush_notes()
    number = replay.make_room()
    new = wire.NewCall(
        number=number, name=operation.name, digest=operation.digest,
        child=msgspec.Raw(msgspec.json.encode(child)),
    )  # fmt: skip
    waiting = Checkpoint(
        number=number, kind=operation.kind, state=StepState.WAITING, name=operation.name,
        digest=operation.digest,
    )  # fmt: skip
    await replay.begin(waiting, message, new, bool)
    return waiting


class Sleep(Operation[None]):
    kind = CheckpointKind.SLEEP

    def __init__(self, replay: Replay, seconds: float) -> None:
        super().__init__(replay, "sleep")
        self._seconds = seconds

    async def _begin(self) -> Checkpoint:
        return await self.replay.record(
            NewCheckpoint(
                number=self.replay.make_room(), kind=self.kind, state=StepState.WAITING,
                name=self.name, delay=self._seconds,
            )
        )  # fmt: skip

    async def _go_on(self, found: Checkpoint) -> Checkpoint:
        left = self._seconds_left(found)
        if left > _LOCAL_SECONDS:
            return await self.replay.wait(found)
        if left > 0:
            await asyncio.sleep(left)
        return self.replay.end_later(found)


class SignalWait(Operation[Any]):
    kind = CheckpointKind.SIGNAL

    def __init__(self, replay: Replay, signal: str, key: str | None, timeout: float | None) -> None:
        super().__init__(replay, signal)
        self._signal = signal
        self._key = key
        self._timeout = timeout

    async def _begin(self) -> Checkpoint:
        await self.replay.flush_notes()
        number = self.replay.make_room()
        new = wire.NewWait(
            number=number, name=self.name, signal=self._signal, key=self._key,
            timeout=self._timeout,
        )  # fmt: skip
        waiting = Checkpoint(number=number, kind=self.kind, state=StepState.WAITING, name=self.name)
        answer = await self.replay.begin(waiting, wire.WAIT, new, wire.Waited)
        waiting.state, waiting.result = answer.state, answer.result
        return waiting

    def _error(self, found: Checkpoint) -> Exception:
        return WaitTimedOut(f"no signal {self._signal!r} came in time")


def _failure(error: Exception) -> Failure:
    lineage = tuple(
        storable(f"{each.__module__}.{each.__qualname__}")
        for each in type(error).__mro__
        if each is not object
    )
    message = message_of(error)[:_MOST_MESSAGE]
    return Failure(lineage[0].removeprefix("builtins."), message, lineage=lineage)


def _is_worth_a_try(retry: Retry, error: Exception, failure: Failure) -> bool:
    return not isinstance(error, Fatal) and may_retry(retry, failure)
