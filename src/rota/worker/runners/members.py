"""Runs a chunk of a map: calls its task for one member after the other.

See `rota.worker.chunks` for the protocol. One pass calls each member that was not tried before; those
that failed, and may be tried again, are tried by a later attempt of the job, after the delay that the
task's policy asks for. A member that is out of attempts has failed, and the chunk goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import Any, NamedTuple

import msgspec

from rota.context import ErrorHook
from rota.core.lifecycle import may_retry, retry_delay
from rota.core.workflow.model import StepState
from rota.errors import LeaseLost, StoreUnavailable
from rota.lib.ids import unit
from rota.model import Failure, Outcome, OutcomeKind
from rota.runtime.members import NULL, RECORD, ChunkBody, Record, RecordedMember
from rota.worker.runners import results

_RECORD_EVERY = 1.0  # seconds
_RECORD_BYTES = 128 * 1024
_SLICE = 0.001  # seconds after which other tasks of the loop go on
_MOST_TRACEBACK = 4_000
_body = msgspec.json.Decoder(ChunkBody)


class _Member(NamedTuple):
    number: int
    attempt: int
    payload: bytes


class _Pass:
    """The outcomes of members since the last record."""

    def __init__(
        self, task: Any, payload: bytes, context: Any, limit: int, hooks: Sequence[ErrorHook]
    ) -> None:
        self._task = task
        self._context = context
        self._limit = limit
        self._hooks = hooks
        self._chunk = _body.decode(payload)
        self.careful = self._chunk.careful
        self.timed = self._chunk.timed
        self._record = Record(done=self._chunk.done, first=self._chunk.first + self._chunk.done)
        self._results: list[msgspec.Raw] = []
        self._returned = False  # whether one of the results isn't null
        self._bytes = 0
        self._since = monotonic()
        self._again = 0  # members to be tried again
        self._delay = 0.0

    # -- members

    def todo(self) -> Iterator[_Member]:
        """Yield the members of this pass: those that were never tried, or else those that failed."""
        chunk = self._chunk
        name = self._item_name()
        others = bytes(chunk.arguments)
        head = b"{" + msgspec.json.encode(name) + b":"
        tail = b"}" if others == b"{}" else b"," + others[1:]
        if chunk.done < len(chunk.items):
            self._again = len(chunk.again)
            for place in range(chunk.done, len(chunk.items)):
                payload = head + bytes(chunk.items[place]) + tail
                yield _Member(chunk.first + place, 1, payload)
            return
        self.careful = True  # they are few, and one of them may be what took a worker down
        for number, tries in chunk.again:
            payload = head + bytes(chunk.items[number - chunk.first]) + tail
            yield _Member(number, tries + 1, payload)

    def _item_name(self) -> str:
        if self._chunk.item is not None:
            return self._chunk.item
        given = msgspec.json.decode(self._chunk.arguments)
        free = [name for name in self._task.arguments.describe().arguments if name not in given]
        return free[0] if free else "item"

    def context_of(self, member: _Member) -> Any:
        own = self._context
        job = msgspec.structs.replace(
            own.job, attempt=member.attempt, max_attempts=self._chunk.max_attempts
        )
        return type(own)(job, own._channel)

    # -- outcomes

    def succeeded(self, member: _Member, value: Any) -> None:
        if value is None and member.number == self._chunk.first + self._record.done:
            self._record.done += 1  # as below, for most
            self._results.append(NULL)
            return
        outcome = results.encode_result(value, self._limit)
        if outcome.failure is not None:  # the effect has happened: it is not tried again
            self._fail(member, outcome.failure, final=True, delay=0.0)
            return
        result = NULL if outcome.result is None else msgspec.Raw(outcome.result)
        if self._is_first_try(member):
            self._end_first_try(result)
        else:
            self._note(member, StepState.SUCCEEDED, result=result)

    def failed(self, member: _Member, error: Exception) -> None:
        if self._hooks:
            results.call_hooks(self._hooks, self._context.job, error)
        outcome = results.failure_outcome(error)
        retry = self._task.options_.retry
        assert outcome.failure is not None
        final = (
            outcome.fatal
            or member.attempt >= self._chunk.max_attempts
            or not may_retry(retry, outcome.failure)
        )
        delay = outcome.retry_after
        if delay is None:
            delay = retry_delay(retry, member.attempt, unit())
        self._fail(member, outcome.failure, final=final, delay=delay)

    def _fail(self, member: _Member, failure: Failure, *, final: bool, delay: float) -> None:
        if not final:
            self._again += 1
            self._delay = max(self._delay, delay)
        cut = msgspec.structs.replace(failure, traceback=failure.traceback[-_MOST_TRACEBACK:])
        self._note(member, StepState.FAILED if final else StepState.WAITING, error=cut)
        self._bytes += len(cut.message) + len(cut.traceback)
        if self._is_first_try(member):
            self._end_first_try(NULL)

    def _is_first_try(self, member: _Member) -> bool:
        return member.number == self._chunk.first + self._record.done

    def _end_first_try(self, result: msgspec.Raw) -> None:
        self._record.done += 1
        self._results.append(result)
        self._bytes += len(bytes(result)) + 1
        self._returned = self._returned or result is not NULL

    def _note(self, member: _Member, state: StepState, **more: Any) -> None:
        self._record.members.append(
            RecordedMember(number=member.number, state=int(state), attempt=member.attempt, **more)
        )

    # -- records

    def is_due(self, now: float) -> bool:
        """Whether it is time to record what was done, or the next member is to be noted first."""
        return self.careful or self._bytes > _RECORD_BYTES or now - self._since > _RECORD_EVERY

    @property
    def is_open(self) -> bool:
        """Whether something has to be recorded."""
        return bool(self._results or self._record.members)

    def take(self, begun: int | None = None) -> bytes:
        """Return what is to be recorded now. `begun`: the member that begins."""
        record = self._record
        record.begun = begun
        record.results = self._results if self._returned else None
        body = msgspec.json.encode(record)
        self._record = Record(done=record.done, first=self._chunk.first + record.done)
        self._results, self._returned, self._bytes = [], False, 0
        self._since = monotonic()
        return body

    def outcome(self) -> Outcome:
        """Return how the job's attempt ends, after all was recorded."""
        if not self._again:
            return Outcome.succeeded()
        count = len(self._chunk.items)
        message = f"{self._again:,} of {count:,} members failed, and are tried again"
        failure = Failure("MembersFailed", message)
        return Outcome(OutcomeKind.RAISED, failure=failure, retry_after=self._delay)


_RETURNED = Outcome(OutcomeKind.RETURNED)


async def run_chunk(
    task: Any, payload: bytes, context: Any, limit: int, hooks: Sequence[ErrorHook] = ()
) -> Outcome:
    """Run a chunk of a coroutine task."""
    chunk, channel = _Pass(task, payload, context, limit, hooks), context._channel
    pause_at = monotonic() + _SLICE
    for member in chunk.todo():
        now = monotonic()
        if chunk.is_due(now) and not await _recorded(
            channel, chunk, member.number if chunk.careful else None
        ):
            return _RETURNED
        if now > pause_at:
            await asyncio.sleep(0)
            pause_at = monotonic() + _SLICE
        if chunk.timed:
            channel.begin_member()
        try:
            own = chunk.context_of(member) if task.takes_context else None
            value = await task.call(member.payload, own)
        except Exception as error:  # noqa: BLE001 - whatever it raises is its outcome
            chunk.failed(member, error)
        else:
            chunk.succeeded(member, value)
    if (chunk.is_open or chunk.careful) and not await _recorded(channel, chunk, None):
        return _RETURNED
    return chunk.outcome()


async def _recorded(channel: Any, chunk: _Pass, begun: int | None) -> bool:
    try:
        await channel.call(RECORD, chunk.take(begun))
    except (LeaseLost, StoreUnavailable):
        return False
    return True


def run_chunk_sync(
    task: Any, payload: bytes, context: Any, limit: int, hooks: Sequence[ErrorHook] = ()
) -> Outcome:
    """Run a chunk of a plain function."""
    chunk, channel = _Pass(task, payload, context, limit, hooks), context._channel
    for member in chunk.todo():
        if chunk.is_due(monotonic()) and not _recorded_sync(
            channel, chunk, member.number if chunk.careful else None
        ):
            return _RETURNED
        if chunk.timed:
            channel.begin_member()
        try:
            own = chunk.context_of(member) if task.takes_context else None
            value = task.call(member.payload, own)
        except Exception as error:  # noqa: BLE001 - whatever it raises is its outcome
            chunk.failed(member, error)
        else:
            chunk.succeeded(member, value)
    if (chunk.is_open or chunk.careful) and not _recorded_sync(channel, chunk, None):
        return _RETURNED
    return chunk.outcome()


def _recorded_sync(channel: Any, chunk: _Pass, begun: int | None) -> bool:
    try:
        channel.call(RECORD, chunk.take(begun))
    except (LeaseLost, StoreUnavailable):
        return False
    return True
