"""Tasks whose function gets the arguments of several jobs at a time.

Protocol. Each job is claimed, started, timed, stopped and ended as any other, under its own token: its
handler is a coroutine that hands its arguments to the gathering of its task, and waits for its part of
the answer. The gathering calls the function once for all that have come, when there are `max_size` or
the first has waited for `max_wait`. So a batch exists only in the memory of one node. When the node dies
each of its jobs is reaped by itself. What the function returns for a job, or an exception in its place,
is that job's outcome; what it raises is the outcome of all. A job that is stopped leaves the batch; the
function goes on for the others, and is cancelled when there are none.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar, get_args, get_origin, get_type_hints, overload

from rota.context import Context, JobInfo
from rota.errors import ConfigError
from rota.task import Task

T = TypeVar("T")
R = TypeVar("R")

_JOBS = list[JobInfo]
_MOST = 10_000


class BatchDecorator(Protocol):
    """The decorator that ``@app.batch_task(...)`` returns: submits take the entry of one job."""

    @overload
    def __call__(
        self, function: Callable[[list[T]], Coroutine[Any, Any, None]], /
    ) -> Task[[T], None]: ...

    @overload
    def __call__(
        self, function: Callable[[list[T]], Coroutine[Any, Any, list[R]]], /
    ) -> Task[[T], R]: ...

    @overload
    def __call__(self, function: Callable[..., Coroutine[Any, Any, Any]], /) -> Task[..., Any]: ...

    def __call__(self, function: Any, /) -> Any: ...


class _Member:
    """One job that waits for its part of a batch's answer."""

    def __init__(self, job: JobInfo, arguments: dict[str, Any]) -> None:
        self.job = job
        self.arguments = arguments
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


class Gathering:
    """The jobs of one task that wait for others, and the batches that run."""

    def __init__(
        self, function: Callable[..., Any], names: list[str], jobs: str | None,
        max_size: Callable[[], int], max_wait: float,
    ) -> None:  # fmt: skip
        self._function = function
        self._names = names
        self._jobs = jobs  # the parameter that gets the jobs
        self._max_size = max_size
        self._max_wait = max_wait
        self._members: list[_Member] = []
        self._timer: asyncio.TimerHandle | None = None
        self._running: set[asyncio.Task[None]] = set()

    async def join(self, job: JobInfo, arguments: dict[str, Any]) -> Any:
        """Wait for the answer of a batch with this job."""
        member = _Member(job, arguments)
        self._members.append(member)
        if len(self._members) >= self._max_size():
            self._begin()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._max_wait, self._begin)
        try:
            return await member.answer
        except asyncio.CancelledError:
            if member in self._members:  # it is stopped before its batch has begun
                self._members.remove(member)
            raise

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        members, self._members = self._members, []
        if not members:
            return
        batch = asyncio.get_running_loop().create_task(self._run(members))
        self._running.add(batch)
        batch.add_done_callback(self._running.discard)
        for member in members:
            member.answer.add_done_callback(functools.partial(self._left, members, batch))

    @staticmethod
    def _left(
        members: list[_Member], batch: asyncio.Task[None], answer: asyncio.Future[Any]
    ) -> None:
        if answer.cancelled() and all(member.answer.done() for member in members):
            batch.cancel()

    async def _run(self, members: list[_Member]) -> None:
        columns: dict[str, Any] = {
            name: [member.arguments[name] for member in members] for name in self._names
        }
        if self._jobs is not None:
            columns[self._jobs] = [member.job for member in members]
        try:
            values = _answers(await self._function(**columns), len(members))
        except BaseException as error:  # noqa: BLE001 - it is the outcome of each
            for member in members:
                if not member.answer.done():
                    member.answer.set_exception(_copied(error))
            return
        for member, value in zip(members, values, strict=True):
            if member.answer.done():
                continue
            if isinstance(value, BaseException):
                member.answer.set_exception(value)
            else:
                member.answer.set_result(value)


def _answers(returned: Any, size: int) -> list[Any]:
    if returned is None:
        return [None] * size
    if not isinstance(returned, list | tuple) or len(returned) != size:
        what = f"{len(returned)} results" if isinstance(returned, list | tuple) else repr(returned)
        raise TypeError(
            f"the function of a batch of {size} jobs must return None, or a list with a result or an "
            f"exception for each of them, not {what:.200}"
        )
    return list(returned)


def _copied(error: BaseException) -> BaseException:
    """Return the exception as that of one job; a batch that was cancelled has failed for each."""
    if isinstance(error, asyncio.CancelledError | StopIteration):
        return RuntimeError(f"the batch was ended by {type(error).__name__}")
    return error


def gathered(
    function: Callable[..., Any], name: str, max_size: int, max_wait: float,
    slots: Callable[[], int], options: dict[str, Any],
) -> Callable[..., Any]:  # fmt: skip
    """Return the handler of single jobs for a function that takes lists."""
    _check(function, name, max_size, max_wait, options)
    hints = get_type_hints(function, include_extras=True)
    signature = inspect.signature(function)
    jobs = next((one for one in signature.parameters if hints.get(one) == _JOBS), None)
    names = [one for one in signature.parameters if one != jobs]
    types = {one: _entry(name, one, hints.get(one)) for one in names}
    if not names:
        raise ConfigError(f"task {name!r}: the function of a batch needs a parameter: list[...]")
    returns = hints.get("return", Any)
    result = get_args(returns)[0] if get_origin(returns) is list else Any
    gathering = Gathering(function, names, jobs, lambda: min(max_size, slots()), max_wait)

    async def handle(ctx: Context, *args: Any, **kwargs: Any) -> Any:
        given = dict(zip(names, args, strict=False)) | kwargs
        return await gathering.join(ctx.job, given)

    parameters = [
        inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Context),
        *(
            inspect.Parameter(one, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=types[one])
            for one in names
        ),
    ]
    result = type(None) if returns is type(None) else result
    handle.__signature__ = inspect.Signature(parameters, return_annotation=result)  # type: ignore[attr-defined]
    handle.__annotations__ = {"ctx": Context, **types, "return": result}
    for field in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(handle, field, getattr(function, field, None))
    return handle


def _check(
    function: Callable[..., Any], name: str, max_size: int, max_wait: float, options: dict[str, Any]
) -> None:
    if not inspect.iscoroutinefunction(function):
        raise ConfigError(f"task {name!r}: the function of a batch must be a coroutine function")
    if isinstance(max_size, bool) or not isinstance(max_size, int) or not 1 <= max_size <= _MOST:
        raise ConfigError(
            f"task {name!r}: max_size must be a whole number from 1 to {_MOST}, not {max_size!r}",
            field="max_size",
        )
    if not isinstance(max_wait, int | float) or not 0 <= max_wait <= 3600:
        raise ConfigError(
            f"task {name!r}: max_wait must be 0 to 3600 seconds, not {max_wait!r}", field="max_wait"
        )
    if options.get("guarantee") == "exactly_once":
        raise ConfigError(
            f"task {name!r}: a batch can't be exactly_once: its jobs end one by one, and no "
            "transaction can hold what the function writes for all of them. Use ctx.once() in a task "
            "without a batch, or make what it writes repeatable",
            field="guarantee",
        )


def _entry(task: str, parameter: str, hint: Any) -> Any:
    """Return the type of one job's argument: the parameter is a list of those."""
    if hint is list:
        return Any
    if get_origin(hint) is not list:
        raise ConfigError(
            f"task {task!r}: parameter {parameter!r} of a batch must be annotated as a list, with the "
            "type of one job's argument in it, such as list[int]; jobs: list[JobInfo] gets the jobs"
        )
    return get_args(hint)[0]
