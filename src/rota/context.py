"""The context of a handler: a description of its job, and calls to the node that runs it."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from datetime import datetime
from time import monotonic
from typing import Any, Literal, TypeAlias, TypeVar, overload
from uuid import UUID

import msgspec

from rota.core.keys import Rate, check_most
from rota.core.rank import due_of
from rota.core.resources import shape_of_lane, to_public
from rota.errors import ConfigError, OnceNotKept, StoreUnavailable
from rota.lib.capture import storable
from rota.lifecycle import State

T = TypeVar("T")
OnUnknown: TypeAlias = Literal["refuse", "run"]


class _NoContext:
    """Stands in for the context of a function that is called directly, without one."""

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "CONTEXT"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copying, pickling and the like ask for what isn't there
            raise AttributeError(name)
        raise RuntimeError(
            f"ctx.{name}: this function was called directly, so that there is no job and no context. "
            "Pass a context of your own, or submit the task"
        )


# The default of a context parameter that isn't the first one: it tells type checkers that callers
# leave it out. ``async def refund(order_id: int, ctx: Context = CONTEXT)``
CONTEXT: Any = _NoContext()


class JobInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The job, as its handler sees it."""

    id: UUID
    task: str
    attempt: int
    max_attempts: int
    token: int
    key: str | None = None
    headers: Mapping[str, Any] = {}
    # The moment, or the rank and the priority that it follows from: most handlers don't ask.
    _due: datetime | tuple[int, int] | None = None
    _lane: str = ""

    @property
    def due_at(self) -> datetime | None:
        return due_of(*self._due) if isinstance(self._due, tuple) else self._due

    @property
    def resources(self) -> dict[str, float]:
        """The amounts that the job takes of its node; memory in bytes."""
        return to_public(shape_of_lane(self._lane).amounts)

    @classmethod
    def of(cls, work: Any) -> JobInfo:
        """Return the description of a claimed job, from a `Work` or from the frame made of it."""
        rank = getattr(work, "rank", None)
        return cls(
            id=work.id, task=work.task, attempt=work.attempt, max_attempts=work.max_attempts,
            token=work.token, key=work.key,
            headers=msgspec.json.decode(work.headers) if work.headers else {},
            _due=work.due_at if rank is None else (rank, work.priority), _lane=work.lane,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"<JobInfo {self.id}: {self.task}, attempt {self.attempt} of {self.max_attempts}>"


# Called with the job and the exception of its attempt: see `App.on_error`.
ErrorHook: TypeAlias = Callable[[JobInfo, BaseException], None]


class OccurrenceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The occurrence of a schedule that a job was made for."""

    schedule: str
    due_at: datetime  # the rule's own moment, in UTC
    local: datetime  # the wall time that the rule asked for, in the schedule's zone
    previous: datetime | None = None  # the occurrence before it, fired or skipped
    caught_up: bool = False  # it was missed, and is made up for

    @property
    def scheduled_local(self) -> datetime:
        return self.local


class _JobContext:
    """The parts of a context that coroutines and plain functions share.

    `channel` passes its calls to the node: see `rota.worker.runners.base.Channel`.
    """

    __slots__ = ("_channel", "_connection", "job")

    def __init__(self, job: JobInfo, channel: Any, connection: Any = None) -> None:
        self.job = job
        self._channel = channel
        self._connection = connection

    @property
    def attempt(self) -> int:
        """The number of this try, from 1."""
        return self.job.attempt

    @property
    def token(self) -> int:
        """The fencing token: rises with every claim of this job.

        Write it beside what you change outside Rota, and refuse to change what carries a higher one:
        then an attempt that lost its lease without noticing can do no harm.
        """
        return self.job.token

    @property
    def occurrence(self) -> OccurrenceInfo | None:
        """The occurrence this job was made for; None when no schedule made it."""
        found = self.job.headers.get("occurrence")
        return None if found is None else msgspec.convert(found, OccurrenceInfo)

    @property
    def connection(self) -> Any:
        """``exactly_once``: the open transaction that will also finish this job.

        What is written through it happens if and only if the job succeeds.
        """
        if self._connection is None:
            raise RuntimeError(
                f'task {self.job.task!r} has no transaction: declare it with guarantee="exactly_once"'
            )
        return self._connection

    @property
    def state(self) -> State:
        """The resources that the app's lifespans have opened in this process: ``ctx.state.pool``."""
        found: State = self._channel.state
        return found

    @property
    def cancelled(self) -> bool:
        """True once this attempt was asked to stop (by a cancel, a timeout or a shutdown)."""
        return bool(self._channel.cancelled)

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Report how far the job is. Cheap; only the latest is kept. It is also a sign of life."""
        self._channel.progress(encode_progress(done, total, message))

    def heartbeat(self) -> None:
        """Give a sign of life, for a task with a `heartbeat_timeout`. Cheap; don't await it.

        The node itself is watched anyway. This shows that the handler makes progress: one that stays
        silent for longer than the task's `heartbeat_timeout` is stopped, and its attempt has failed
        with the outcome ``heartbeat_timeout``. Without one it does nothing.
        """
        self._channel.heartbeat()


class Context(_JobContext):
    """Given to coroutine tasks that have a parameter annotated `Context`, or named ``ctx``."""

    __slots__ = ()

    @contextlib.asynccontextmanager
    async def limit(
        self, name: str, *, concurrency: int | None = None, rate: str | None = None,
        rate_burst: int | None = None, timeout: float | None = None,
    ) -> AsyncIterator[None]:  # fmt: skip
        """Wait for a place under a limit of the whole cluster, and hold it inside.

        ``async with ctx.limit("stripe", concurrency=5, rate="100/s"):`` lets at most five handlers into
        such blocks at a time, and a hundred a second, whichever tasks and nodes they are of. Who asks
        first is first. The place ends with the block, or with the attempt, however that ends. The time
        of waiting counts for the job's timeout.

        Args:
            name: of the limit: letters, digits, and any of ``_.:-``.
            concurrency: how many may be inside at a time.
            rate: how many may enter in a period, such as ``100/minute``.
            rate_burst: how many of them may enter at once; a tenth of a second's worth by default.
            timeout: seconds to wait at most; then `TimeoutError` is raised.
        """
        body = msgspec.json.encode(_ask(name, concurrency, rate, rate_burst))
        until, call = _until(timeout), self._channel.call
        try:
            while True:
                async with asyncio.timeout(None if until is None else max(until - monotonic(), 0)):
                    answer = await call("limit_take", body)
                if msgspec.json.decode(answer, type=PermitAnswer).granted:
                    break
                _check_time(name, until, timeout)
            yield
        finally:
            with contextlib.suppress(StoreUnavailable):  # it ends with the job
                await call("limit_leave", body)

    @overload
    async def once(
        self, key: str, effect: Callable[[], Awaitable[T]], *, on_unknown: OnUnknown = "refuse"
    ) -> T: ...

    @overload
    async def once(
        self, key: str, effect: Callable[[], T], *, on_unknown: OnUnknown = "refuse"
    ) -> T: ...

    async def once(
        self, key: str, effect: Callable[[], Any], *, on_unknown: OnUnknown = "refuse"
    ) -> Any:
        """Do a side effect at most once for all attempts of all jobs that use this key.

        The key is written down, the effect is run, its (JSON) result is kept and given back to
        whoever asks again. If it raises, the key is free again. If an attempt died inside the
        effect nobody knows whether it happened: `OnceUnknown` is raised, unless you say
        ``on_unknown="run"`` because the other side recognises a repetition. If its result isn't
        JSON, the effect stays done, and `OnceNotKept` is raised.
        """
        call, name = self._channel.call, msgspec.json.encode(key)
        asked = msgspec.json.encode([key, on_unknown == "run"])
        begun = msgspec.json.decode(await call("once_begin", asked), type=OnceAnswer)
        if begun.done:
            return begun.value(key)
        try:
            value = effect()
            if inspect.isawaitable(value):
                value = await value
        except Exception:
            with contextlib.suppress(StoreUnavailable):  # then the key stays begun
                await call("once_drop", name)
            raise
        except BaseException:  # cancelled, by the handler's own timeout for one
            await call("once_leave", name)
            raise
        # From here on it has happened, and the key is never freed again.
        try:
            encoded = msgspec.json.encode([key, value])
        except Exception as error:
            await call("once_end", msgspec.json.encode([key]))
            raise OnceNotKept(key, str(error)) from error
        await call("once_end", encoded)
        return value


class SyncContext(_JobContext):
    """Given to plain functions. The same as `Context`, without awaiting."""

    __slots__ = ()

    @contextlib.contextmanager
    def limit(
        self, name: str, *, concurrency: int | None = None, rate: str | None = None,
        rate_burst: int | None = None, timeout: float | None = None,
    ) -> Iterator[None]:  # fmt: skip
        """Wait for a place under a limit, and hold it inside. See `Context.limit`."""
        body = msgspec.json.encode(_ask(name, concurrency, rate, rate_burst))
        until, call = _until(timeout), self._channel.call
        try:
            while not msgspec.json.decode(call("limit_take", body), type=PermitAnswer).granted:
                _check_time(name, until, timeout)
            yield
        finally:
            with contextlib.suppress(StoreUnavailable):  # it ends with the job
                call("limit_leave", body)

    def once(self, key: str, effect: Callable[[], T], *, on_unknown: OnUnknown = "refuse") -> T:
        """Do a side effect at most once for all attempts of all jobs that use this key.

        See `Context.once`.
        """
        call = self._channel.call
        asked = msgspec.json.encode([key, on_unknown == "run"])
        begun = msgspec.json.decode(call("once_begin", asked), type=OnceAnswer)
        if begun.done:
            result: T = begun.value(key)
            return result
        try:
            value = effect()
        except Exception:
            # Stopped from outside (JobStopped is no Exception) it may or may not have happened:
            # then the key stays begun. So it does if the node can't free it now.
            with contextlib.suppress(StoreUnavailable):
                call("once_drop", msgspec.json.encode(key))
            raise
        # From here on it has happened, and the key is never freed again.
        try:
            encoded = msgspec.json.encode([key, value])
        except Exception as error:
            call("once_end", msgspec.json.encode([key]))
            raise OnceNotKept(key, str(error)) from error
        call("once_end", encoded)
        return value


class OnceAnswer(msgspec.Struct):
    """The state of a `once` key: done with this result, or begun by this attempt."""

    done: bool
    result: msgspec.Raw = msgspec.Raw(b"null")
    kept: bool = True  # whether there is a result: not if it wasn't JSON

    def value(self, key: str) -> Any:
        """Return the result of the effect. Raises OnceNotKept if there is none."""
        if not self.kept:
            raise OnceNotKept(key)
        return msgspec.json.decode(self.result)


class PermitAsk(msgspec.Struct):
    """A request of a handler for a place under a limit. `number` tells its requests apart."""

    number: int
    name: str
    concurrency: int | None = None
    rate: Rate | None = None


class PermitAnswer(msgspec.Struct):
    granted: bool


_LIMIT_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,99}")
_asks = itertools.count(1)


def _ask(name: str, concurrency: int | None, rate: str | None, burst: int | None) -> PermitAsk:
    if not isinstance(name, str) or not _LIMIT_NAME.fullmatch(name):
        raise ConfigError(
            "the name of a limit must be 1 to 100 letters, digits and any of _.:-, "
            f"not {name!r:.300}",
            field="name",
        )
    check_most("concurrency", concurrency)
    if concurrency is None and rate is None:
        raise ConfigError(f"limit({name!r}) needs a concurrency or a rate", field="concurrency")
    if rate is None and burst is not None:
        raise ConfigError("rate_burst needs a rate", field="rate_burst")
    return PermitAsk(
        next(_asks) % 2**31, name, concurrency, None if rate is None else Rate.parse(rate, burst)
    )


def _until(timeout: float | None) -> float | None:
    if timeout is not None and not 0 <= timeout < 1e9:
        raise ConfigError(f"timeout must be 0 seconds or more, not {timeout!r}", field="timeout")
    return None if timeout is None else monotonic() + timeout


def _check_time(name: str, until: float | None, timeout: float | None) -> None:
    if until is not None and monotonic() >= until:
        raise TimeoutError(f"limit {name!r} had no place for {timeout:g} seconds")


def encode_progress(done: float, total: float | None, message: str) -> bytes:
    shown = storable(str(message)[:500])
    return msgspec.json.encode({"done": done, "total": total, "message": shown})
