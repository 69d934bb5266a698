"""Durable functions as an application declares them: ``@app.durable``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Protocol, overload

from rota.core.time.interval import seconds_of
from rota.core.workflow.graph import Graph
from rota.core.workflow.model import Definition, StepDefinition
from rota.core.workflow.references import INPUT, Reference
from rota.durable import wire
from rota.durable.branches import Interrupted, Mismatch, Suspended
from rota.durable.context import DurableContext
from rota.durable.replay import Replay
from rota.durable.sync import SyncDurableContext, run_in_thread
from rota.errors import ConfigError, LeaseLost, RunCancelled, StoreUnavailable
from rota.model import Outcome, OutcomeKind, Retry
from rota.run_handle import RunHandle
from rota.task import P, R, SubmitOptions, Task, TaskOptions, as_call

if TYPE_CHECKING:
    from rota.operations.runs import Runs

_LEFT = Outcome(OutcomeKind.RETURNED, settled=True)
_RETURNED = Outcome(OutcomeKind.RETURNED)
_CANCELLED = Outcome(OutcomeKind.CANCELLED)


class DurableFunction(Task[P, R]):
    """Made by ``@app.durable``. Starting it makes a run, which survives any crash."""

    def __init__(
        self, runs: Runs, submissions: Any, function: Callable[..., Any], name: str,
        options: TaskOptions, *, version: int = 1, deadline: float | str | None = None,
        retention: float | str | None = None,
    ) -> None:  # fmt: skip
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            raise ConfigError(f"version must be a whole number from 1, not {version!r}")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigError(
                f"durable function {name!r} is a generator: nothing would ever run it. Do what it "
                "yields by the methods of its context, and return a list"
            )
        self._is_plain = not inspect.iscoroutinefunction(function)
        self._own = function
        super().__init__(submissions, self._as_coroutine(function), name, options)
        if self.arguments.context_parameter is None:
            raise ConfigError(
                f"durable function {name!r} takes no context: give it a first parameter `ctx`, "
                "through which it does what must survive"
            )
        self._check_context()
        if self.arguments.injected:
            raise ConfigError(
                f"durable function {name!r} has injected parameters, which could differ at each replay: "
                "inject them into the tasks of its steps"
            )
        self.runs = runs
        self.version = version
        self._deadline = None if deadline is None else seconds_of(deadline, "deadline")
        self._retention = None if retention is None else seconds_of(retention, "retention")
        self.graph = self._make_graph()

    def _check_context(self) -> None:
        """Refuse the other context: what it does is awaited in coroutines alone."""
        given = self.arguments.hint(str(self.arguments.context_parameter))
        if self._is_plain and given is DurableContext:
            raise ConfigError(
                f"durable function {self.name!r} is a plain function, whose context is a "
                "SyncDurableContext: annotate it so, or write `async def`"
            )
        if not self._is_plain and given is SyncDurableContext:
            raise ConfigError(
                f"durable function {self.name!r} is a coroutine, whose context is a DurableContext: "
                "annotate it so, or write `def`"
            )

    def _as_coroutine(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if not self._is_plain:
            return function

        @functools.wraps(function)
        async def in_thread(*args: Any, **kwargs: Any) -> Any:
            return await run_in_thread(function, args, kwargs)

        return in_thread

    def _context_types(self) -> tuple[type, ...]:
        return (*super()._context_types(), DurableContext, SyncDurableContext)

    def _make_graph(self) -> Graph:
        described = self.arguments.describe().arguments
        arguments = {
            name: Reference(INPUT, name, optional=not each.required).to_json()
            for name, each in described.items()
        }
        own = self.options_
        step = StepDefinition(
            name=self.name, task=self.name, arguments=arguments, queue=own.queue, needs=own.needs,
            priority=own.priority, timeout=own.timeout, max_attempts=own.retry.max_attempts,
            resources=own.resources, near=own.near, near_patience=own.near_patience,
        )  # fmt: skip
        return Graph(
            Definition(
                name=self.name, steps=(step,), deadline=self._deadline, retention=self._retention,
                description=inspect.getdoc(self._own) or "", code_version=self.version,
            )
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"<DurableFunction {self.name}>"

    # -- starting

    def given(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the input of a run with these arguments, checked."""
        return self.runs.input_of(self, args, dict(kwargs))

    def given_all(self, calls: Iterable[Any]) -> list[dict[str, Any]]:
        """Return the inputs of runs with these arguments, checked."""
        return [self.given(*as_call(call)) for call in calls]

    async def start(self, *args: P.args, **kwargs: P.kwargs) -> RunHandle:
        """Start a run with these arguments."""
        return await self.runs.start_declared(self, self.given(args, kwargs), {})

    def start_sync(self, *args: P.args, **kwargs: P.kwargs) -> RunHandle:
        """Start a run, from synchronous code."""
        return self.runs.start_declared_sync(self, self.given(args, kwargs), {})

    async def start_many(self, calls: Iterable[Any]) -> list[RunHandle]:
        """Start many runs in one transaction, all or none: far cheaper than one by one.

        Each call is a tuple of positional arguments, a dict of keyword arguments, or one value.
        """
        return await self.runs.start_all_declared(self, self.given_all(calls), {})

    def start_many_sync(self, calls: Iterable[Any]) -> list[RunHandle]:
        """Start many runs at once, from synchronous code. See `start_many`."""
        return self.runs.start_all_declared_sync(self, self.given_all(calls), {})

    def start_options(
        self, *, key: str | None = None, priority: int | None = None,
        deadline: float | str | None = None, connection: Any = None,
    ) -> BoundFunction[P, R]:  # fmt: skip
        """Return the function with options for the runs that are started through it.

        Args:
            key: idempotency key: the same key and arguments give the same run back.
            priority: of its jobs: higher goes first.
            deadline: seconds (or ``"2h"``) after its start at which it fails.
            connection: your own open transaction; the run exists if and only if it commits.
        """
        seconds = None if deadline is None else seconds_of(deadline, "deadline")
        given = {"key": key, "priority": priority, "deadline": seconds, "connection": connection}
        return BoundFunction(self, given)

    def new_run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[[], Any]:
        """Return what makes a run of this function, as a call of another one."""
        given = self.given(args, kwargs)
        return lambda: self.runs.new_declared(self, given, {})

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        raise _not_submitted(self.name)

    def submit_sync(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        raise _not_submitted(self.name)

    async def submit_many(self, calls: Any) -> Any:
        raise _not_submitted(self.name)

    def submit_many_sync(self, calls: Any) -> Any:
        raise _not_submitted(self.name)

    def options(self, **given: Any) -> Any:
        SubmitOptions.checked(**given)
        raise ConfigError(
            f"{self.name!r} is a durable function: use start_options(key=, deadline=, connection=)"
        )

    # -- running

    async def call(self, payload: bytes, context: Any) -> Any:
        """Run the function from its beginning: see `rota.durable.replay`."""
        try:
            answer = await context._channel.call(wire.OPEN, b"null")
        except (LeaseLost, StoreUnavailable):
            return _RETURNED
        # From here on the replay turns what the store says into `Interrupted`. A `StoreUnavailable` that
        # the function itself raises is a failure of it: given back, it would be run again for ever.
        replay = Replay(context._channel, wire.decode_history(answer))
        try:
            if replay.history.paused:
                await replay.suspend_paused()
                return _LEFT
            own = DurableContext(context, replay, self)
            return await replay.run(self.called_with(payload, own))
        except Suspended:
            return _LEFT
        except Mismatch as error:
            return await self._park(replay, error)
        except Interrupted:
            return _RETURNED
        except RunCancelled:
            return _CANCELLED

    def called_with(self, payload: bytes, context: DurableContext) -> Any:
        """Return the function's coroutine, with its arguments decoded."""
        return super().call(payload, context)

    async def _park(self, replay: Replay, error: Mismatch) -> Outcome:
        try:
            return _LEFT if await replay.park(error) else _CANCELLED
        except Interrupted:
            return _RETURNED


class DurableDecorator(Protocol):
    """The decorator that ``@app.durable(...)`` returns."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[DurableContext, P], Coroutine[Any, Any, R]], /
    ) -> DurableFunction[P, R]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[SyncDurableContext, P], R], /
    ) -> DurableFunction[P, R]: ...


class BoundFunction(Generic[P, R]):
    """A durable function with options for its runs. Made by ``function.start_options(...)``."""

    def __init__(self, function: DurableFunction[P, R], options: Mapping[str, Any]) -> None:
        self.function = function
        self.name = function.name
        self._options = options

    async def start(self, *args: P.args, **kwargs: P.kwargs) -> RunHandle:
        """Start a run with these arguments."""
        given = self.function.given(args, kwargs)
        return await self.function.runs.start_declared(self.function, given, self._options)

    def start_sync(self, *args: P.args, **kwargs: P.kwargs) -> RunHandle:
        """Start a run, from synchronous code."""
        given = self.function.given(args, kwargs)
        return self.function.runs.start_declared_sync(self.function, given, self._options)

    async def start_many(self, calls: Iterable[Any]) -> list[RunHandle]:
        """Start many runs in one transaction, all or none: far cheaper than one by one.

        Each call is a tuple of positional arguments, a dict of keyword arguments, or one value.
        """
        given = self.function.given_all(calls)
        return await self.function.runs.start_all_declared(self.function, given, self._options)

    def start_many_sync(self, calls: Iterable[Any]) -> list[RunHandle]:
        """Start many runs at once, from synchronous code. See `start_many`."""
        given = self.function.given_all(calls)
        return self.function.runs.start_all_declared_sync(self.function, given, self._options)

    def new_run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[[], Any]:
        """Return what makes a run of this function, as a call of another one."""
        given = self.function.given(args, kwargs)
        return lambda: self.function.runs.new_declared(self.function, given, self._options)


def _not_submitted(name: str) -> ConfigError:
    return ConfigError(
        f"{name!r} is a durable function: start a run of it, with `await {name}.start(...)`"
    )


DEFAULT_RETRY = Retry(max_attempts=1)
