"""The context of a durable function: what it does through it happens once, and survives any crash."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import inspect
import typing
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal, TypeVar
from uuid import UUID

import msgspec

from rota.config import check_name
from rota.context import Context
from rota.core.codec import ResultReader, encode_hook
from rota.core.time.interval import seconds_of
from rota.core.workflow.model import CheckpointKind
from rota.durable import wire
from rota.durable.branches import FailedAt, Suspended, failed_at, fails_at
from rota.durable.operations import (
    JobCall,
    Operation,
    RunCall,
    SignalWait,
    Sleep,
    StepOperation,
)
from rota.durable.replay import Replay
from rota.errors import ConfigError, InvalidArguments, RunCancelled
from rota.lib import tracing
from rota.model import Guarantee, Retry
from rota.task import BoundTask, SubmitOptions, Task
from rota.workflow import BoundWorkflow, Workflow

T = TypeVar("T")
Losers = Literal["cancel", "leave"]

_ONCE = Retry(max_attempts=1)
_LONGEST = 3_155_760_000.0  # seconds, a hundred years: what PostgreSQL can add to any time of day


class DurableContext(Context):
    """Given to durable functions. What they do through it happens once, and survives any crash."""

    __slots__ = (
        "_function",
        "_limit",
        "_name",
        "_replay",
        "_retry",
        "_timeout",
        "run_id",
        "version",
    )

    def __init__(self, context: Context, replay: Replay, function: Any) -> None:
        super().__init__(context.job, context._channel, context._connection)
        self._replay = replay
        self._function = function
        self._limit: int = function.runs.settings.max_result_bytes
        self._name: str | None = None
        self._retry: Retry | None = None
        self._timeout: float | None = None
        self.run_id = replay.history.run
        # The version that the function's declaration had when the run was started.
        self.version = replay.history.code_version

    def options(
        self, *, name: str | None = None, retry: Retry | None = None,
        timeout: float | str | None = None,
    ) -> DurableContext:  # fmt: skip
        """Return this context with options for a step: ``await ctx.options(retry=...).step(pay, 5)``.

        Args:
            name: what the step is called in the history; the function's name by default.
            retry: when and how often it is tried again; by default the task's policy, or never.
            timeout: seconds (or ``"30s"``) that one try may take; by default the task's, or no limit.
        """
        other = DurableContext(self, self._replay, self._function)
        other._name = name if name is None else check_name("step", name)
        other._retry = retry
        other._timeout = None if timeout is None else seconds_of(timeout, "timeout")
        return other

    # -- doing

    @typing.overload
    def step(self, work: Task[..., T], /, *args: Any, **kwargs: Any) -> Operation[T]: ...
    @typing.overload
    def step(
        self, work: Callable[..., Coroutine[Any, Any, T]], /, *args: Any, **kwargs: Any
    ) -> Operation[T]: ...
    @typing.overload
    def step(self, work: Callable[..., T], /, *args: Any, **kwargs: Any) -> Operation[T]: ...

    def step(self, work: Any, /, *args: Any, **kwargs: Any) -> Operation[Any]:
        """Do something here and now, and record its result: after a crash it isn't done again.

        `work` is a task or any function; a plain one runs in a thread. If it raises, it is tried again
        by its task's retry policy; then `StepFailed` is raised. A crash between what it does and its
        record repeats it. So a task that is ``exactly_once`` or ``at_most_once`` becomes a job of its
        own.
        """
        if isinstance(work, Task):
            if work.options_.guarantee is not Guarantee.AT_LEAST_ONCE:
                return self.call(work, *args, **kwargs)
            function, returns = work.function, work.result_reader
            is_async = work.is_async
            retry = self._retry or work.options_.retry
            timeout = self._timeout if self._timeout is not None else work.options_.timeout
            name = self._name or work.name
            if work.arguments.context_parameter is not None:
                kwargs[str(work.arguments.context_parameter)] = self
            digest = _digest(args, _without_context(work, kwargs))
        else:
            if not callable(work):
                raise ConfigError(f"a step is a task or a function, not {work!r}")
            function, returns = work, _reader_of(work)
            is_async = inspect.iscoroutinefunction(work)
            retry, timeout = self._retry or _ONCE, self._timeout
            name = self._name or _name_of(work)
            digest = _digest(args, kwargs)

        def run() -> Any:
            if is_async:
                return _in_time(function(*args, **kwargs), timeout)
            return _in_time(_in_thread(function, args, kwargs), timeout)

        return StepOperation(self._replay, name, run, returns, retry, digest, self._limit)

    @typing.overload
    def call(self, work: BoundTask[..., T], /, *args: Any, **kwargs: Any) -> Operation[T]: ...
    @typing.overload
    def call(
        self, work: Workflow | BoundWorkflow, /, *args: Any, **kwargs: Any
    ) -> Operation[Any]: ...

    def call(self, work: Any, /, *args: Any, **kwargs: Any) -> Operation[Any]:
        """Submit a job, or start a run of a workflow or of another durable function; its result.

        While it runs, this function needs no worker. Raises `CallFailed` if it fails for good. Options
        are given as for a submit: ``ctx.call(task.options(queue="mail"), ...)``.
        """
        if isinstance(work, Workflow | BoundWorkflow) or hasattr(work, "new_run"):
            child = work.new_run(args, kwargs)
            digest, reader = _digest(args, kwargs), _result_reader(work)
            return RunCall(self._replay, self._name or work.name, child, digest, reader)
        if not isinstance(work, BoundTask):
            raise ConfigError(
                f"ctx.call takes a task, a workflow or a durable function, not {work!r}: to run a "
                "function of this process use ctx.step"
            )
        task, options = work._task, work._options
        _check_call(task, options)
        submissions = task._submissions

        def child_job() -> Any:
            job = submissions.new_call(task, options, args, kwargs)
            with tracing.submitting(job):
                return job

        name = self._name or task.name
        return JobCall(self._replay, name, task, child_job, _digest(args, kwargs))

    # -- waiting

    def sleep(self, seconds: float | str) -> Operation[None]:
        """Wait for some seconds, or ``"1 day"``, by the database's clock. It survives any crash."""
        return Sleep(self._replay, _bounded(seconds_of(seconds, "sleep"), "sleep"))

    def sleep_until(self, moment: datetime) -> Operation[None]:
        """Wait until a moment, which has a time zone."""
        if not isinstance(moment, datetime) or moment.tzinfo is None:
            raise InvalidArguments(f"sleep_until needs a datetime with a time zone, not {moment!r}")
        seconds = max((moment - self._replay.now()).total_seconds(), 0.0)
        return Sleep(self._replay, _bounded(seconds, "sleep_until"))

    def wait(
        self, signal: str, *, key: str | None = None, timeout: float | str | None = None
    ) -> Operation[Any]:
        """Wait for a signal, and return its payload.

        Args:
            signal: its name.
            key: which of the signals with this name; by default those that are sent to this run.
            timeout: seconds, or ``"3d"``, after which `WaitTimedOut` is raised.

        A signal that was sent before is taken at once. Each is taken by one wait.
        """
        check_name("signal", signal)
        if key is not None and (not isinstance(key, str) or not 0 < len(key) < 256 or "\0" in key):
            raise InvalidArguments(
                f"key must be a text of 1 to 255 characters, none of them NUL, not {key!r:.100}: no "
                "other can be sent"
            )
        seconds = None if timeout is None else _bounded(seconds_of(timeout, "timeout"), "timeout")
        return SignalWait(self._replay, signal, key, seconds)

    async def gather(
        self, *works: Operation[Any] | Coroutine[Any, Any, Any], return_exceptions: bool = False
    ) -> list[Any]:
        """Do several things at the same time, and return their results in order.

        Waits until all have ended, then raises the first exception, if there is one; `RunCancelled`
        before others, since the function is told of it only once.
        """
        branch = self._replay.name_of("gather")
        names = [f"{branch}.{number}/" for number in range(len(works))]
        joins = [branch if isinstance(work, Operation) else None for work in works]
        results = await self._replay.all_of([_performed(work) for work in works], names, joins)
        raised = [
            result for result in results
            if isinstance(result, BaseException)
            and (not return_exceptions or not isinstance(result, Exception))
        ]  # fmt: skip
        if raised:
            first = min(raised, key=_rank_of)
            raise fails_at(first, self._failed_together(branch, works, results))
        return results

    def _failed_together(
        self, gather: str, works: Sequence[Any], results: Sequence[Any]
    ) -> FailedAt | None:
        """Return where a resume begins after a gather: it repeats all that failed, or another one would
        be raised then. What did not fail is kept, and what a branch did before it failed."""
        failed: list[int] = []
        kept: set[int] = set()
        branches = self._replay.numbers_by_branch(gather)
        for place_in_gather, (work, result) in enumerate(zip(works, results, strict=True)):
            if isinstance(work, Operation):
                own = self._replay.number_of(work.name)
            else:
                own = branches.get(f"{gather}.{place_in_gather}/", set())
            place = failed_at(result) if isinstance(result, BaseException) else None
            if place is None:
                kept |= own
            else:
                failed.append(place.number)
                kept |= {each for each in own if each < place.number or each in place.kept}
        if not failed:
            return None
        return FailedAt(min(failed), frozenset(each for each in kept if each > min(failed)))

    async def race(
        self, *works: Operation[Any] | Coroutine[Any, Any, Any], losers: Losers = "cancel"
    ) -> tuple[int, Any]:
        """Do several things at the same time until one has ended; return its place and its result.

        The others are cancelled: jobs and runs that were called are asked to stop. With
        ``losers="leave"`` those go on by themselves. If the first one raised, that is raised.
        """
        if not works:
            raise InvalidArguments("a race needs at least one thing to do")
        replay = self._replay
        branch = replay.name_of("race")
        names = [f"{branch}.{number}/" for number in range(len(works))]
        note = f"{branch}.winner"
        found = replay.find(note, CheckpointKind.NOTE)
        if found is None:
            winner = await replay.first_of([_performed(work) for work in works], names)
        else:
            winner = msgspec.json.decode(found.result, type=int)
            for number, work in enumerate(works):
                if number != winner and inspect.iscoroutine(work):
                    work.close()
        branches = [name for number, name in enumerate(names) if number != winner]
        for name in branches:
            replay.leave_out(name)
        others = [each for each in works if each is not works[winner]]
        lost = {each.name for each in others if isinstance(each, Operation)}
        replay.untell(lost, branches)
        await replay.end_race(branch, winner, lost, branches, cancel=losers == "cancel")
        chosen = works[winner]
        if isinstance(chosen, Operation):
            return winner, await chosen
        return winner, await replay.result_of(chosen, names[winner])

    # -- the same at every replay

    def now(self) -> datetime:
        """Return the time, by the database's clock: at every replay the same."""
        name = self._replay.name_of("now")
        found = self._replay.find(name, CheckpointKind.NOTE)
        if found is not None:
            return msgspec.json.decode(found.result, type=datetime).astimezone(UTC)
        moment = self._replay.now()
        self._replay.note(name, moment)
        return moment

    def random(self) -> float:
        """Return a random number from 0 to 1: at every replay the same."""
        return (int.from_bytes(self._replay.random_bytes()[:8]) >> 11) / 2**53

    def uuid(self) -> UUID:
        """Return a random UUID: at every replay the same."""
        return UUID(bytes=self._replay.random_bytes()[:16], version=4)

    def patched(self, name: str) -> bool:
        """Return whether a change of the code holds for this run.

        False for runs that were past this place when the change was deployed: they go on as they began.
        """
        note = f"patch {check_name('patch', name)}"
        replay = self._replay
        if replay.find(note, CheckpointKind.NOTE) is not None:
            return True
        if replay.not_asked_for() is not None:
            return False
        replay.note(note, True)
        return True

    # -- the run

    async def set_status(self, status: Any) -> None:
        """Say how far the run is: `run.status()` and the dashboard show it. Any JSON value."""
        if (size := len(msgspec.json.encode(status))) > self._limit:
            raise InvalidArguments(
                f"the status has {size:,} bytes, over max_result_bytes ({self._limit:,}): say less"
            )
        await self._replay.call(wire.STATUS, status, bool)

    async def restart(self, **given: Any) -> typing.NoReturn:
        """Begin the function anew with this input, and without a history: for endless functions.

        The run, its key and the signals that were sent to it stay. It doesn't return.
        """
        await self._replay.restart(self._function.given((), given))
        raise Suspended


def _rank_of(error: BaseException) -> int:
    """Which of several exceptions is raised: that the function is left, then that it is cancelled."""
    if not isinstance(error, Exception):
        return 0
    return 1 if isinstance(error, RunCancelled) else 2


def _bounded(seconds: float, field: str) -> float:
    if seconds > _LONGEST:
        raise InvalidArguments(f"{field} must be at most 100 years, not {seconds:g} seconds")
    return seconds


def _performed(work: Operation[Any] | Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
    if isinstance(work, Operation):
        return work._perform()
    if not inspect.iscoroutine(work):
        raise InvalidArguments(
            f"gather and race take what a context's methods return, and coroutines, not {work!r}"
        )
    return work


def _check_call(task: Task[..., Any], options: SubmitOptions) -> None:
    if options.key is not None or options.connection is not None:
        raise InvalidArguments(
            f"ctx.call({task.name!r}): a call has no key and no connection: its place in the "
            "function's history is its key"
        )


def _digest(args: Any, kwargs: Any) -> str | None:
    try:
        text = msgspec.json.encode([args, kwargs], enc_hook=encode_hook, order="sorted")
    except Exception:  # noqa: BLE001 - what isn't JSON isn't compared
        return None
    return hashlib.sha256(text).hexdigest()[:16]


def _without_context(task: Task[..., Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    own = task.arguments.context_parameter
    if own is None:
        return kwargs
    return {name: value for name, value in kwargs.items() if name != own}


def _result_reader(work: Any) -> ResultReader | None:
    """Return the reader of what a durable function returns; None for a workflow."""
    function = work if isinstance(work, Task) else getattr(work, "function", None)  # with options
    return function.result_reader if isinstance(function, Task) else None


def _reader_of(function: Callable[..., Any]) -> ResultReader:
    plain = getattr(function, "__func__", function)
    return _returns(plain) if isinstance(plain, Hashable) else ResultReader(Any)


@lru_cache(1024)
def _returns(function: Callable[..., Any]) -> ResultReader:
    returns = Any
    with contextlib.suppress(Exception):
        returns = typing.get_type_hints(function).get("return", Any)
    return ResultReader(returns)


def _name_of(function: Any) -> str:
    name = str(getattr(function, "__name__", type(function).__name__))
    return "lambda" if name == "<lambda>" else name


async def _in_time(work: Awaitable[T], timeout: float | None) -> T:
    if timeout is None:
        return await work
    async with asyncio.timeout(timeout):
        return await work


async def _in_thread(function: Callable[..., T], args: Any, kwargs: Any) -> T:
    return await asyncio.to_thread(function, *args, **kwargs)
