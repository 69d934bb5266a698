"""Tasks: registered code with a name and defaults, and the ways to submit it."""

from __future__ import annotations

import importlib.util
import inspect
import types
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from math import inf
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypeGuard,
    TypeVar,
    overload,
)

import msgspec

from rota.config import check_name
from rota.context import Context, SyncContext
from rota.core.arguments import Arguments
from rota.core.codec import ResultReader, is_pydantic, unreadable
from rota.core.keys import (
    KeySource,
    OrderFailure,
    Rate,
    check_key,
    check_most,
    check_order_failure,
    check_source,
    key_from,
)
from rota.core.resources import check_near, demands, parse_job
from rota.core.signature import VERSION, Signature
from rota.core.unique import (
    ThrottleKeep,
    Unique,
    UniqueConflict,
    UniqueKeySource,
    UniqueScope,
    check_unique_source,
    unique_key_of,
)
from rota.core.versions import Upgrade, VersionedArguments
from rota.core.years import year_problem
from rota.errors import ConfigError, InvalidArguments, PayloadTooNew, RetryAfter, UnfitArguments
from rota.handle import JobHandle
from rota.lib.capture import storable
from rota.middleware import Scope, composed, injecting
from rota.model import Guarantee, Retry, RunnerName

if TYPE_CHECKING:
    from rota.calls import Call, Partial

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")

HEARTBEAT_TIMEOUT = "heartbeat_timeout"  # in the headers of a job that was submitted with one
UNLIMITED = 900_000_000.0  # seconds, as a job's timeout: no limit
PRIORITIES = range(-1000, 1001)
_NEWER_SECONDS = 30.0  # before another try, perhaps by a worker of the newer release
_MOST_DESCRIPTION = 2_000  # characters
_CALLER = 5  # frames up from the check: where the decorator stands


class TaskOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A task's defaults."""

    queue: str = "default"
    needs: tuple[str, ...] = ()
    priority: int = 0
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    retry: Retry = msgspec.field(default_factory=Retry)
    timeout: float | None = None
    runner: RunnerName | None = None
    expected: float | None = None
    deadline: float | None = None
    heartbeat_timeout: float | None = None
    concurrency: int | None = None
    concurrency_key: KeySource | None = None
    fairness_key: KeySource | None = None
    rate: Rate | None = None
    order_key: KeySource | None = None
    order_failure: OrderFailure = "continue"
    version: int = 1
    upgrade: Upgrade | None = None
    unique: UniqueScope | float | timedelta | None = None
    unique_key: UniqueKeySource | None = None
    unique_conflict: UniqueConflict | None = None
    debounce: float | timedelta | None = None
    debounce_max: float | timedelta | None = None
    throttle: float | timedelta | None = None
    throttle_keep: ThrottleKeep | None = None
    resources: Mapping[str, Any] | None = None
    near: str | None = None
    near_patience: float | None = None
    # What its jobs ask of a worker, as it is stored: needs, resources and nearness.
    demands: tuple[str, ...] = ()

    @classmethod
    def checked(cls, **given: Any) -> TaskOptions:
        """Make the options from what an application declares."""
        given["guarantee"] = Guarantee.parse(given.get("guarantee", "at_least_once"))
        given["needs"] = names_of(given.get("needs", ()))
        given["retry"] = given.get("retry") or Retry()
        burst = given.pop("rate_burst", None)
        if given.get("rate") is not None:
            given["rate"] = Rate.parse(given["rate"], burst)
        elif burst is not None:
            raise ConfigError("rate_burst needs a rate")
        given["demands"] = given["needs"]
        if given.get("resources") is not None or given.get("near") is not None:
            near, patience = given.get("near"), given.get("near_patience")
            check_near(near, patience)
            given["demands"] = demands(
                given["needs"], given.get("resources"), near, patience, ()
            )  # fmt: skip
        elif given.get("near_patience") is not None:
            raise ConfigError("near_patience needs near")
        return cls(**given)

    def __post_init__(self) -> None:
        check_name("queue", self.queue)
        for need in self.needs:
            check_name("a capability in needs", need)
        _check_priority(self.priority)
        _check_timeout(self)
        for field in ("expected", "deadline", "heartbeat_timeout"):
            value = getattr(self, field)
            if value is not None and not value > 0:
                raise ConfigError(f"{field} must be above 0 seconds, not {value!r}")
        check_most("concurrency", self.concurrency)
        check_order_failure(self.order_failure)
        self.declared_unique()

    def declared_unique(self) -> Unique | None:
        """Return how its jobs are unique, without the key."""
        try:
            unique = Unique.parse(self)
        except InvalidArguments as error:
            raise ConfigError(str(error)) from None
        if unique is None and self.unique_key is not None:
            raise ConfigError("unique_key needs unique, debounce or throttle")
        if unique is not None and unique.is_punctual and self.order_key is not None:
            raise ConfigError("order_key can't be given with debounce, nor with throttle_keep last")
        return unique


class SubmitOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one submit. The task's defaults hold for what is left out."""

    at: datetime | None = None
    delay: float | None = None
    key: str | None = None
    priority: int | None = None
    queue: str | None = None
    needs: tuple[str, ...] | None = None
    max_attempts: int | None = None
    timeout: float | None = None
    heartbeat_timeout: float | None = None
    tags: tuple[str, ...] = ()
    headers: dict[str, Any] | None = None
    concurrency_key: str | None = None
    fairness_key: str | None = None
    order_key: str | None = None
    unique: UniqueScope | float | timedelta | None = None
    unique_key: str | None = None
    unique_conflict: UniqueConflict | None = None
    debounce: float | timedelta | None = None
    debounce_max: float | timedelta | None = None
    throttle: float | timedelta | None = None
    throttle_keep: ThrottleKeep | None = None
    connection: Any = None
    block: bool = False
    block_timeout: float | None = None
    resources: Mapping[str, Any] | None = None
    near: str | None = None
    near_patience: float | None = None

    @classmethod
    def checked(cls, **given: Any) -> SubmitOptions:
        unknown = sorted(set(given) - set(cls.__struct_fields__))
        if unknown:
            known = ", ".join(cls.__struct_fields__)
            raise InvalidArguments(f"unknown option {unknown[0]!r}; known: {known}")
        for seconds in ("delay", "block_timeout"):
            if isinstance(span := given.get(seconds), timedelta):
                given[seconds] = span.total_seconds()
        for several in ("needs", "tags"):
            if (value := given.get(several)) is not None:
                given[several] = names_of(value)
        return cls(**given)

    def __post_init__(self) -> None:
        self._check_time()
        for field in ("key", "concurrency_key", "fairness_key", "order_key", "unique_key"):
            check_key(field, getattr(self, field))
        if self.headers is not None and not isinstance(self.headers, dict):
            raise InvalidArguments(f"headers must be a dict, not {self.headers!r}")
        if self.priority is not None:
            _check_priority(self.priority)
        if self.queue is not None:
            check_name("queue", self.queue)
        for need in self.needs or ():
            check_name("a capability in needs", need)
        for tag in self.tags:
            check_name("tag", tag)
        if self.max_attempts is not None and not _is_whole(self.max_attempts, range(1, 32_001)):
            raise InvalidArguments(f"max_attempts must be 1 to 32000, not {self.max_attempts!r}")
        check_demands(self)
        _check_timeout(self)
        silence = self.heartbeat_timeout
        if silence is not None and not is_heartbeat_timeout(silence):
            raise InvalidArguments(f"heartbeat_timeout must be above 0 seconds, not {silence!r}")
        if self.headers and HEARTBEAT_TIMEOUT in self.headers:
            raise InvalidArguments("heartbeat_timeout is an option of its own: not in headers")
        self._check_block()

    def _check_block(self) -> None:
        if not isinstance(self.block, bool):
            raise InvalidArguments(f"block must be True or False, not {self.block!r}")
        if self.block and self.connection is not None:
            raise InvalidArguments(
                "block can't be given with connection: your transaction would stay open while it waits"
            )
        if (wait := self.block_timeout) is not None:
            if not self.block:
                raise InvalidArguments("block_timeout needs block=True")
            if not is_number(wait) or not wait >= 0:
                raise InvalidArguments(f"block_timeout must be 0 seconds or more, not {wait!r}")

    def _check_time(self) -> None:
        if self.at is not None and self.delay is not None:
            raise InvalidArguments("give at or delay, not both")
        if self.at is not None and (not isinstance(self.at, datetime) or self.at.tzinfo is None):
            raise InvalidArguments(
                f"at must be a datetime with a time zone, not {self.at!r}; "
                "e.g. datetime(2027, 1, 1, 9, tzinfo=ZoneInfo('Europe/Paris'))"
            )
        if self.at is not None and (problem := year_problem("at", self.at)) is not None:
            raise InvalidArguments(problem)
        if self.delay is not None and (
            not is_number(self.delay) or not 0 <= self.delay <= 3_155_760_000
        ):
            raise InvalidArguments(f"delay must be 0 seconds to 100 years, not {self.delay!r}")


def check_demands(options: Any) -> None:
    """Check the resources and the nearness of a submit or a step."""
    if options.resources is not None:
        parse_job(options.resources)
    check_near(options.near, options.near_patience)
    if options.near_patience is not None and not options.near:
        raise InvalidArguments("near_patience needs near")


def names_of(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return the given names as a tuple. A text is one name, not its letters."""
    return (given,) if isinstance(given, str) else tuple(given)


def _check_priority(priority: object) -> None:
    if not _is_whole(priority, PRIORITIES):
        raise ConfigError(f"priority must be a whole number from -1000 to 1000, not {priority!r}")


def _check_timeout(options: TaskOptions | SubmitOptions) -> None:
    """Check the timeout. No limit is stored as a very long one: JSON has no infinity."""
    timeout = options.timeout
    if timeout == inf:
        msgspec.structs.force_setattr(options, "timeout", UNLIMITED)
    elif timeout is not None and (not is_number(timeout) or not 0 < timeout < 1e9):
        raise ConfigError(
            f"timeout must be above 0 and below 1e9 seconds (math.inf: no limit), not {timeout!r}"
        )


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether the value is a number, which a bool isn't here."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: object, allowed: range) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value in allowed


class Submissions(Protocol):
    """Stores a task's jobs: `rota.operations.submissions.Submissions`."""

    @property
    def runs(self) -> Any:
        """Starts what is composed of tasks: `rota.operations.runs.Runs`."""

    async def submit_call(
        self, task: Task[..., Any], options: SubmitOptions, args: Any, kwargs: Any
    ) -> JobHandle[Any]: ...

    def submit_call_sync(
        self, task: Task[..., Any], options: SubmitOptions, args: Any, kwargs: Any
    ) -> JobHandle[Any]: ...

    async def submit_calls(
        self, task: Task[..., Any], options: SubmitOptions, calls: Iterable[Any]
    ) -> list[JobHandle[Any]]: ...

    def submit_calls_sync(
        self, task: Task[..., Any], options: SubmitOptions, calls: Iterable[Any]
    ) -> list[JobHandle[Any]]: ...

    def new_call(
        self, task: Task[..., Any], options: SubmitOptions, args: Any, kwargs: Any
    ) -> Any: ...


class BoundTask(Generic[P, R]):
    """A task with options for its submits. Made by ``task.options(...)``."""

    def __init__(self, submissions: Submissions, task: Task[P, R], options: SubmitOptions) -> None:
        self._submissions = submissions
        self._task = task
        self._options = options

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Store a job that will call this function with these arguments."""
        return await self._submissions.submit_call(self._task, self._options, args, kwargs)

    def submit_sync(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Submit from synchronous code."""
        return self._submissions.submit_call_sync(self._task, self._options, args, kwargs)

    async def submit_many(self, calls: Iterable[Any]) -> list[JobHandle[R]]:
        """Store many jobs at once, all or none.

        Each call is a tuple of positional arguments, a dict of keyword arguments, or one value.
        """
        return await self._submissions.submit_calls(self._task, self._options, calls)

    def submit_many_sync(self, calls: Iterable[Any]) -> list[JobHandle[R]]:
        """Store many jobs at once, from synchronous code. See `submit_many`."""
        return self._submissions.submit_calls_sync(self._task, self._options, calls)


def as_call(call: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of one of many calls: a tuple, a dict, or one value."""
    if isinstance(call, dict):
        return (), call
    if isinstance(call, tuple):
        return call, {}
    return (call,), {}


class Task(BoundTask[P, R]):
    """Made by ``@app.task``. Calling it calls the function; submitting it makes a job."""

    def __init__(
        self,
        submissions: Submissions,
        function: Callable[..., Any],
        name: str,
        options: TaskOptions,
    ) -> None:
        super().__init__(submissions, self, SubmitOptions())
        self.function = function
        # What opens the transaction of an exactly_once plain function; None: its child process.
        self.effects: Any = None
        self.name = check_name("task", name)
        self.options_ = options
        self.is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(
            function
        )
        self._check_kind()
        self.runner: RunnerName = options.runner or ("loop" if self.is_async else "process")
        self._check_runner()
        for field in ("concurrency_key", "fairness_key", "order_key"):
            check_source(field, getattr(options, field), function, self.name)
        check_unique_source(options.unique_key, function, self.name)
        self.unique = options.declared_unique()
        self.arguments = self._read_arguments()
        self.result_reader = ResultReader(self.arguments.returns)
        self._check_result()
        self.takes_context = self.arguments.context_parameter is not None
        self._takes_anything = (
            self.takes_context or not self.arguments.is_empty or bool(self.arguments.injected)
        )
        self.__name__ = name
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def _read_arguments(self) -> Arguments:
        version, upgrade = self.options_.version, self.options_.upgrade
        if version == 1 and upgrade is None:
            return Arguments(self.function, self._context_types(), self.name)
        return VersionedArguments(self.function, self._context_types(), self.name, version, upgrade)

    def _context_types(self) -> tuple[type, ...]:
        """Return the types by which a parameter is known to be the context."""
        return Context, SyncContext

    def _check_result(self) -> None:
        returns = self.arguments.returns
        if not is_pydantic(returns) and (wrong := unreadable(returns)) is not None:
            warnings.warn(
                f"task {self.name!r} returns {wrong.__module__}.{wrong.__qualname__}, which has no JSON "
                "form: its jobs will succeed, and their results will be dropped",
                stacklevel=_CALLER,
            )

    def _check_kind(self) -> None:
        """Refuse a generator function: calling it runs nothing, and its jobs would succeed."""
        if inspect.isgeneratorfunction(self.function) or inspect.isasyncgenfunction(self.function):
            raise ConfigError(
                f"task {self.name!r} is a generator: nothing would ever run it. Make it a plain "
                "function or a coroutine without `yield`, and return what it gives as a list; or "
                "declare it with @app.generator, if a workflow is to map over what it yields"
            )

    def _check_runner(self) -> None:
        if self.is_async != (self.runner == "loop"):
            fitting = '"loop"' if self.is_async else '"process" or "thread"'
            kind = "a coroutine" if self.is_async else "a plain function"
            raise ConfigError(f"task {self.name!r} is {kind}: its runner must be {fitting}")
        if self.is_async or self.options_.guarantee is not Guarantee.EXACTLY_ONCE:
            return
        if self.runner == "thread":
            raise ConfigError(
                f"task {self.name!r}: exactly_once needs a coroutine, or a plain function in a "
                'child process (runner="process")'
            )
        if importlib.util.find_spec("psycopg") is None:
            raise ConfigError(
                f"task {self.name!r}: a plain function that is exactly_once has its transaction through "
                "psycopg, which is not installed: pip install 'rota[psycopg]', or make it a coroutine"
            )

    @overload
    def s(self: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> Call[R]: ...
    @overload
    def s(
        self: Task[Concatenate[Any, Q], R], *args: Q.args, **kwargs: Q.kwargs
    ) -> Partial[Any, R]: ...

    def s(self, *args: Any, **kwargs: Any) -> Any:
        """Return a call of the task, for `rota.chain`, `rota.group` and `rota.chord`.

        In a chain, the result of the part before it becomes its first argument.
        """
        from rota.calls import make_call  # it knows workflows, which know tasks

        return make_call(self, args, kwargs)

    def si(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Return a call of the task that takes no result of the part before it."""
        from rota.calls import Call

        return Call(self, args, kwargs, alone=True)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.arguments.context_parameter is not None:
            self._check_direct_call(args, kwargs)
        return self.function(*args, **kwargs)

    def _check_direct_call(self, args: Any, kwargs: Any) -> None:
        """Explain a direct call without a context: only a job has one to pass."""
        try:
            inspect.signature(self.function).bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(
                f"task {self.name!r} was called directly, which calls its function as it is: {error}. "
                f"Pass a context of your own as {self.arguments.context_parameter!r}, or submit it"
            ) from None

    def __repr__(self) -> str:
        names = ", ".join(self.arguments.describe().arguments)
        return f"<Task {self.name}({names}): {self.runner} runner, queue {self.options_.queue}>"

    def registered(self) -> Signature:
        """Return what nodes register of the task: its arguments, its result, what it is for."""
        words = inspect.getdoc(self.function) or ""
        return self.arguments.registered(storable(words)[:_MOST_DESCRIPTION])

    def options(
        self,
        *,
        at: datetime | None = None,
        delay: float | timedelta | None = None,
        key: str | None = None,
        priority: int | None = None,
        queue: str | None = None,
        needs: Sequence[str] | None = None,
        max_attempts: int | None = None,
        timeout: float | None = None,
        heartbeat_timeout: float | None = None,
        tags: Sequence[str] = (),
        headers: dict[str, Any] | None = None,
        concurrency_key: str | None = None,
        fairness_key: str | None = None,
        order_key: str | None = None,
        unique: UniqueScope | float | timedelta | None = None,
        unique_key: str | None = None,
        unique_conflict: UniqueConflict | None = None,
        debounce: float | timedelta | None = None,
        debounce_max: float | timedelta | None = None,
        throttle: float | timedelta | None = None,
        throttle_keep: ThrottleKeep | None = None,
        connection: Any = None,
        block: bool = False,
        block_timeout: float | timedelta | None = None,
        resources: Mapping[str, Any] | None = None,
        near: str | None = None,
        near_patience: float | None = None,
    ) -> BoundTask[P, R]:
        """Return the task with other options for its submits.

        Args:
            at: the moment to run it (with a time zone); by default, now.
            delay: seconds (or a timedelta) from now, by the database's clock.
            key: idempotency key: the same key and content give the same job back.
            priority: higher goes first; each point is worth a minute of waiting.
            queue: the queue to put it into.
            needs: capabilities that a worker must have.
            max_attempts: how often it may be tried in all.
            timeout: seconds an attempt may take; ``math.inf``: no limit.
            heartbeat_timeout: seconds an attempt may go without ``ctx.heartbeat()``.
            tags: names to find it by.
            headers: a JSON object that travels along (trace context and the like).
            concurrency_key: jobs with the same one count together for limits per key.
            fairness_key: jobs with the same one share what a fair queue gives to their key.
            order_key: jobs of a queue with the same one run one after another, in order.
            unique: one job only, while it is ``waiting`` or ``unfinished``, or in so many seconds.
            unique_key: what it is unique by, among the task's jobs; all its arguments by default.
            unique_conflict: what a second submit does: ``return`` the first job (the default),
                ``refuse`` (`DuplicateJob`), or ``replace`` its arguments while it waits.
            debounce: seconds to run it after the last submit, with the arguments of that.
            debounce_max: seconds after the first submit by which it runs all the same.
            throttle: seconds in which one job is stored; other submits get it back.
            throttle_keep: ``last``: of those others, the last one is kept for the end of the time.
            connection: your own open transaction; the job exists if and only if it commits.
            block: wait while the queue is full, instead of raising `QueueFull`.
            block_timeout: seconds to wait at most; then `QueueFull` is raised.
            resources: what it takes of its node, as ``{"memory": "2GB", "gpu": 1}``.
            near: a label of the nodes that claim it at once.
            near_patience: seconds after which other nodes may claim it, too (5).
        """
        options = SubmitOptions.checked(
            at=at, delay=delay, key=key, priority=priority, queue=queue, needs=needs,
            max_attempts=max_attempts, timeout=timeout, heartbeat_timeout=heartbeat_timeout,
            tags=tags, headers=headers, concurrency_key=concurrency_key,
            fairness_key=fairness_key, order_key=order_key, unique=unique, unique_key=unique_key,
            unique_conflict=unique_conflict, debounce=debounce, debounce_max=debounce_max,
            throttle=throttle, throttle_keep=throttle_keep, connection=connection, block=block,
            block_timeout=block_timeout, resources=resources, near=near,
            near_patience=near_patience,
        )  # fmt: skip
        return BoundTask(self._submissions, self, options)

    @property
    def is_limited(self) -> bool:
        return self.options_.concurrency is not None or self.options_.rate is not None

    def declared_key(self, field: str, payload: bytes) -> str | None:
        """Return the key that a job with these arguments gets by what the task declares."""
        source: KeySource | None = getattr(self.options_, field)
        if source is None:
            return None
        arguments = msgspec.json.decode(payload)
        arguments.pop(VERSION, None)  # of the payload, which is no argument
        return key_from(field, source, self.function, arguments)

    def declared_unique_key(self, payload: bytes) -> str | None:
        """Return the unique key of a job with these arguments. None: it is unique by all of them."""
        source = self.options_.unique_key
        if source is None:
            return None
        arguments = msgspec.json.decode(payload)
        arguments.pop(VERSION, None)  # of the payload, which is no argument
        return unique_key_of(source, self.function, arguments)

    def wrap(
        self, middlewares: Sequence[Callable[..., Any]], scope: Callable[[], Scope | None]
    ) -> None:
        """Put middlewares, and what is injected, around the calls of runners."""
        call: Any = types.MethodType(type(self).call, self)  # not `self.call`, which may be wrapped
        if injected := self.arguments.injected:
            call = injecting(self._call_with, injected, scope, self.name, is_async=self.is_async)
        if middlewares or injected:
            # A runner makes a context for each call: middlewares and scopes get it, too.
            self.takes_context = True
            wrapped: Any = composed(call, middlewares, is_async=self.is_async)
            self.call = wrapped  # type: ignore[method-assign]

    def call(self, payload: bytes, context: Any) -> Any:
        """Decode the arguments and call the function. For runners."""
        if payload == b"{}" and not self._takes_anything:
            return self.function()
        args, kwargs = self._bound(payload, context)
        return self.function(*args, **kwargs)

    def _call_with(self, payload: bytes, context: Any, injected: Mapping[str, Any]) -> Any:
        args, kwargs = self._bound(payload, context)
        return self.function(*args, **kwargs, **injected)

    def _bound(self, payload: bytes, context: Any) -> tuple[list[Any], dict[str, Any]]:
        arguments = self.arguments
        try:
            args, kwargs = arguments.decode(payload)
        except PayloadTooNew as error:
            raise RetryAfter(_NEWER_SECONDS, str(error)) from None
        except InvalidArguments as error:
            raise UnfitArguments(str(error)) from None
        if arguments.context_parameter is not None:
            if arguments.context_place is None:
                kwargs[arguments.context_parameter] = context
            else:
                args.insert(arguments.context_place, context)
        return args, kwargs


def is_heartbeat_timeout(value: object) -> bool:
    """Return whether the value is a number of seconds above 0 that a clock can measure."""
    return is_number(value) and 0.001 <= value < 1e9


def own_heartbeat_timeout(headers: str | None) -> float | None:
    """Return the heartbeat timeout that a job was submitted with. It overrides that of its task."""
    if headers is None or HEARTBEAT_TIMEOUT not in headers:
        return None
    try:
        value = msgspec.json.decode(headers).get(HEARTBEAT_TIMEOUT)
    except msgspec.MsgspecError:
        return None
    return float(value) if is_heartbeat_timeout(value) else None


def stricter_guarantees(tasks: Mapping[str, Task[..., Any]]) -> dict[str, Guarantee]:
    """Return the guarantees of the tasks that promise more than to run at least once."""
    declared = {name: task.options_.guarantee for name, task in tasks.items()}
    return {name: each for name, each in declared.items() if each is not Guarantee.AT_LEAST_ONCE}


def heartbeat_timeouts(tasks: Mapping[str, Task[..., Any]]) -> dict[str, float]:
    """Return the heartbeat timeouts, in seconds, of the tasks that have one."""
    timeouts = {name: task.options_.heartbeat_timeout for name, task in tasks.items()}
    return {name: timeout for name, timeout in timeouts.items() if timeout is not None}
