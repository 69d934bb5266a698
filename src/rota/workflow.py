"""Workflows: graphs of tasks that an application declares, and the ways to start them."""

from __future__ import annotations

import asyncio
import typing
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

import msgspec

from rota.core.arguments import plain_json
from rota.core.codec import ResultReader
from rota.core.explain import Explanation
from rota.core.time.interval import seconds_of
from rota.core.workflow.graph import Graph
from rota.core.workflow.maps import check_mapped
from rota.core.workflow.model import STREAM, Definition, RuleName, RunState, StepDefinition
from rota.core.workflow.references import (
    INPUT,
    RESULTS,
    STEP,
    Reference,
    escape,
    escaped,
    read_reference,
)
from rota.errors import ConfigError, ResultUnavailable, RotaError
from rota.generators import GeneratorTask, not_in_a_map
from rota.lib import display
from rota.lib.display import Bar, as_html
from rota.lib.sync_bridge import sync_bridge
from rota.model import MapMember, Run, RunChanged, RunStep
from rota.task import P, R, Task

_OPTIONS = (
    "after", "rule", "when", "name", "tolerate", "optional", "queue", "needs", "priority",
    "max_attempts", "timeout",
)  # fmt: skip
_PAGE = 1_000  # steps that one query reads
_COMPUTED_KEYS = ("concurrency_key", "order_key")  # where a job is submitted

MAP_OPTIONS = ("over", "size", "at_once", "each", "item")


class RunFailed(RotaError):
    """The run that was waited for ended otherwise than in success."""

    def __init__(self, run: Run) -> None:
        self.run = run
        reason = f": {run.error['message']}" if isinstance(run.error, dict) else ""
        super().__init__(f"run {run.id} of workflow {run.workflow!r} {run.state}{reason}")


class Declared(Protocol):
    """What an application declares and starts runs of: a workflow, or a durable function."""

    @property
    def name(self) -> str: ...
    @property
    def graph(self) -> Graph: ...


class RunOperations(Protocol):
    """The operations that a workflow and its handles use: `rota.operations.runs.Runs`."""

    async def start_declared(
        self, workflow: Declared, given: Mapping[str, Any], options: Mapping[str, Any]
    ) -> RunHandle: ...
    def start_declared_sync(
        self, workflow: Declared, given: Mapping[str, Any], options: Mapping[str, Any]
    ) -> RunHandle: ...
    async def new_declared(
        self, workflow: Declared, given: Mapping[str, Any], options: Mapping[str, Any]
    ) -> Any: ...
    async def get(self, id: UUID | str) -> Run: ...
    async def has_ended(self, id: UUID | str) -> bool: ...
    async def send(
        self, id: UUID | str, signal: str, payload: Any = None, *, once: str | None = None
    ) -> Any: ...
    async def result(self, id: UUID | str) -> Any: ...
    async def steps(
        self, id: UUID | str, *, after: int = -1, limit: int = 1000
    ) -> list[RunStep]: ...
    async def explain(self, id: UUID | str, step: str | None = None) -> Explanation: ...
    async def cancel(self, id: UUID | str) -> RunChanged: ...
    async def pause(self, id: UUID | str) -> RunChanged: ...
    async def resume(self, id: UUID | str) -> RunChanged: ...
    async def retry(self, id: UUID | str, step: str) -> RunChanged: ...
    async def skip(self, id: UUID | str, step: str, result: Any = None) -> RunChanged: ...
    async def members(
        self, id: UUID | str, step: str, *, after: int = -1, state: str | None = None,
        limit: int = 100,
    ) -> list[MapMember]: ...  # fmt: skip
    async def retry_members(
        self, id: UUID | str, step: str, numbers: Sequence[int] | None = None
    ) -> RunChanged: ...


class Step:
    """A step of a workflow, as an argument of others: it stands for the step's result.

    `step["key"]` and `step[0]` stand for a part of it. Type checkers take a step for what its task
    returns.
    """

    def __init__(self, name: str, path: tuple[str | int, ...] = (), returns: Any = Any) -> None:
        self.name = name
        self.path = path
        self.returns = returns if not path else Any

    def __getitem__(self, key: str | int) -> Step:
        if not isinstance(key, str | int) or isinstance(key, bool):
            raise ConfigError(f"a part of step {self.name!r} is a key or a position, not {key!r}")
        return Step(self.name, (*self.path, key))

    def __iter__(self) -> typing.NoReturn:
        raise ConfigError(
            f"step {self.name!r} has no result while the workflow is declared: map a task over it"
        )

    def __bool__(self) -> typing.NoReturn:
        raise ConfigError(
            f"step {self.name!r} has no result while the workflow is declared: write a condition, "
            f'when="{self.name} ..."'
        )

    def __repr__(self) -> str:
        return f"<Step {Reference(STEP, self.name, self.path)}>"


class MapStep(Step):
    """A map, as an argument of others: it stands for the counts of its members."""

    @property
    def results(self) -> Any:
        """The list of the results of all members, None for those that failed."""
        return MapResults(self.name)


class MapResults:
    """The results of a map's members, as an argument of a step."""

    def __init__(self, name: str) -> None:
        self.name = name


class Input:
    """A value of a run's input, as an argument of a step. Made by ``flow.input("name")``."""

    def __init__(self, name: str) -> None:
        self.name = name


class OptionalInput(Input):
    """A value of a run's input that need not be there."""


class Workflow:
    """A graph of steps. Made by ``app.workflow("name")``; checked as a whole at its first use."""

    def __init__(
        self, runs: RunOperations, name: str, *, deadline: float | str | None = None,
        retention: float | str | None = None, description: str = "",
    ) -> None:  # fmt: skip
        self._runs = runs
        self.name = name
        self._deadline = None if deadline is None else seconds_of(deadline, "deadline")
        self._retention = None if retention is None else seconds_of(retention, "retention")
        self._description = description
        self._steps: dict[str, StepDefinition] = {}
        self._generators: set[str] = set()  # steps whose items become members of maps
        self._result: str | None = None
        self._graph: Graph | None = None

    def __repr__(self) -> str:
        return f"<Workflow {self.name}>"

    # -- declaring

    @typing.overload
    def step(self, task: Task[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @typing.overload
    def step(self, task: Task[..., R], /, *args: Any, after: Any, **kwargs: Any) -> R: ...
    @typing.overload
    def step(self, task: Task[..., R], /, *args: Any, rule: RuleName, **kwargs: Any) -> R: ...
    @typing.overload
    def step(self, task: Task[..., R], /, *args: Any, when: str, **kwargs: Any) -> R: ...
    @typing.overload
    def step(self, task: Task[..., R], /, *args: Any, name: str, **kwargs: Any) -> R: ...
    @typing.overload
    def step(self, task: Workflow, /, **kwargs: Any) -> Any: ...

    def step(self, task: Task[..., Any] | Workflow, /, *args: Any, **given: Any) -> Any:
        """Add a step that runs a task, or another workflow, with these arguments.

        Other steps given as arguments stand for their results, and come before it. A parameter that is
        left out is taken from the run's input if that has its name. Further keywords are options:

        Args:
            task: the task or workflow to run.
            after: steps that must end first, besides those whose results are used.
            rule: when it starts: ``all_succeeded`` (the default), ``all_ended``, ``one_succeeded``,
                ``one_failed``, or ``always``: as all_ended, and also in a run that was cancelled.
            when: a condition on results and input, such as ``"rows.count > 0"``; else it is skipped.
            name: what it is called; the task's name by default.
            tolerate: how many of the steps before it may fail: a number, or a share such as 0.01.
            optional: its failure doesn't fail the run, and steps after it go on.
            queue, needs, priority, max_attempts, timeout: as for a submit.
        """
        options, kwargs = self._split(task, args, given)
        name = options.pop("name", None) or self._free_name(task.name)
        if name in self._steps:
            raise ConfigError(f"workflow {self.name!r}: two steps are named {name!r}")
        arguments = self._arguments(task, args, kwargs, name)
        after = [_step_name(each, name) for each in _several(options.pop("after", ()))]
        nested = isinstance(task, Workflow)
        self._steps[name] = StepDefinition(
            name=name, arguments=arguments, after=after, task=None if nested else task.name,
            workflow=task.name if nested else None, **{**task_defaults(task), **options},
        )  # fmt: skip
        self._graph = None
        if isinstance(task, GeneratorTask):
            self._generators.add(name)
        returns = Any if isinstance(task, Workflow) else task.arguments.returns
        return Step(name, returns=returns)

    def map(self, task: Task[..., Any], /, **given: Any) -> Any:
        """Add a step that calls a task for each item of a list. It stands for the counts of its members:
        ``parts["failed"]``, also ``succeeded`` and ``count``; `parts.results` for their results.

        Keywords that are no options are arguments that every call gets. Options are, besides those of
        `step`:

        Args:
            task: the task to call.
            arguments: what every call gets, as a dict: for names that are options, too.
            over: the list: a step that returns one, or is a generator (`App.generator`); a value of the
                input; or the list itself.
            size: members in a chunk, which one job runs one after the other. By default so many that
                `at_once` chunks share the list, 1,000 at most.
            at_once: how many of its jobs may exist at a time, 50 by default.
            tolerate: how many members may fail: a number, or a share such as ``"1%"`` or 0.01.
            each: ``"chunk"``, or ``"job"``: every member is a job, with timeout and retries of its own.
            item: the name of the argument that takes the item; by default the first that isn't given.
        """
        if not isinstance(task, Task) or hasattr(task, "graph"):
            raise ConfigError(
                f"workflow {self.name!r}: a map calls a task, and {task!r} is none: map a task that "
                "starts runs of it"
            )
        if "over" not in given:
            raise ConfigError(
                f"workflow {self.name!r}: a map of {task.name!r} needs `over`: its list"
            )
        arguments = dict(given.pop("arguments", None) or {})
        extra = {name: given.pop(name) for name in MAP_OPTIONS if name in given}
        options, kwargs = self._split(task, (), given, "give it in arguments={...}")
        if twice := sorted(arguments.keys() & kwargs.keys()):
            raise ConfigError(f"argument {twice[0]!r} is given twice: by itself and in arguments")
        return self.add_map(task, extra | options, arguments | kwargs)

    def add_map(
        self, task: Task[..., Any], options: Mapping[str, Any], kwargs: Mapping[str, Any]
    ) -> MapStep:
        """Add a map whose options and arguments are told apart already. See `map`."""
        extra = {name: options[name] for name in MAP_OPTIONS if name in options}
        options = {name: value for name, value in options.items() if name not in MAP_OPTIONS}
        name = options.pop("name", None) or self._free_name(task.name)
        if name in self._steps:
            raise ConfigError(f"workflow {self.name!r}: two steps are named {name!r}")
        options["tolerate"] = share_of(options.get("tolerate", 0), f"step {name!r}")
        over = extra.pop("over")
        if isinstance(over, Iterable) and not isinstance(over, Step | str | Mapping | list | tuple):
            raise ConfigError(
                f"workflow {self.name!r}, step {name!r}: over must be a step, an input or a list: a "
                "generator is a step, declared with @app.generator; app.map() maps over one of this "
                "process"
            )
        check_mapped(
            f"workflow {self.name!r}, step {name!r}", task.name, each=extra.get("each", "chunk"),
            size=extra.get("size"), rated=task.options_.rate is not None,
            keys=[key for key in _COMPUTED_KEYS if getattr(task.options_, key) is not None],
        )  # fmt: skip
        if task.options_.rate is not None and extra.get("each", "chunk") == "chunk":
            extra["size"] = 1  # also where the task isn't registered yet
        arguments, item = map_arguments(task, extra.pop("item", None), kwargs, f"step {name!r}")
        written = {key: self._written(value, name) for key, value in arguments.items()}
        after = [_step_name(each, name) for each in _several(options.pop("after", ()))]
        self._steps[name] = StepDefinition(
            name=name, map=task.name, over=over if over == STREAM else self._written(over, name),
            item=item, arguments=written, after=after, **{**task_defaults(task), **options}, **extra,
        )  # fmt: skip
        self._graph = None
        return MapStep(name)

    def input(self, name: str) -> Any:
        """Return what stands for a value of the run's input, as an argument of a step."""
        return Input(name)

    def returns(self, step: Any) -> None:
        """Make a step's result the run's. By default it is that of the only last step."""
        self._result = _step_name(step, "returns()")
        self._graph = None

    @property
    def graph(self) -> Graph:
        """The checked graph. Raises `ConfigError` for cycles, unknown steps and bad conditions."""
        if self._graph is None:
            self._graph = Graph(
                Definition(
                    name=self.name, steps=tuple(self._steps.values()), deadline=self._deadline,
                    result=self._result, retention=self._retention, description=self._description,
                )
            )  # fmt: skip
            self._check_generators()
        return self._graph

    def _check_generators(self) -> None:
        """Refuse a generator's step that no map is over, or that one is over in part."""
        over = {name: self._over(step) for name, step in self._steps.items()}
        for name, reference in over.items():
            if reference is not None and reference.name in self._generators and reference.path:
                raise ConfigError(
                    f"workflow {self.name!r}, step {name!r}: step {reference.name!r} is a generator: "
                    "map over the step itself, and not over a part of it"
                )
        used = {reference.name for reference in over.values() if reference is not None}
        for name in sorted(self._generators - used):
            raise ConfigError(
                f"workflow {self.name!r}, step {name!r}: "
                f"{not_in_a_map(str(self._steps[name].task))}"
            )

    def _over(self, step: StepDefinition) -> Reference | None:
        found = read_reference(step.over) if isinstance(step.over, Mapping) else None
        return found if found is not None and found.kind == STEP else None

    def _split(
        self, task: Task[..., Any] | Workflow, args: tuple[Any, ...], given: Mapping[str, Any],
        instead: str = "pass the argument by its position",
    ) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
        """Tell options from arguments. A name that could be either is refused."""
        names = [] if isinstance(task, Workflow) else [*task.arguments.describe().arguments]
        for name in given:
            if name in _OPTIONS and name in names[len(args) :]:
                raise ConfigError(
                    f"workflow {self.name!r}: {name!r} is an option of a step and an argument of task "
                    f"{task.name!r}: {instead}"
                )
        options = {name: value for name, value in given.items() if name in _OPTIONS}
        return options, {name: value for name, value in given.items() if name not in _OPTIONS}

    def _free_name(self, name: str) -> str:
        if name not in self._steps:
            return name
        number = 2
        while f"{name}_{number}" in self._steps:
            number += 1
        return f"{name}_{number}"

    def _arguments(
        self, task: Task[..., Any] | Workflow, args: tuple[Any, ...], kwargs: dict[str, Any],
        step: str,
    ) -> dict[str, Any]:  # fmt: skip
        if isinstance(task, Workflow):
            if args:
                raise ConfigError(f"step {step!r}: give the input of a workflow by name")
            return {name: self._written(value, step) for name, value in kwargs.items()}
        bound = task.arguments.bind_some(args, kwargs)
        self._check_types(task, bound, step)
        arguments = {name: self._written(value, step) for name, value in bound.items()}
        for name, argument in task.arguments.describe().arguments.items():
            if name not in bound:
                missing = Reference(INPUT, name, optional=not argument.required)
                arguments[name] = missing.to_json()
        return arguments

    def _written(self, value: Any, step: str) -> Any:
        """Return an argument as it is stored: with references in place of steps and inputs."""
        if isinstance(value, Step):
            return Reference(STEP, _step_name(value, step), value.path).to_json()
        if isinstance(value, MapResults):
            return Reference(RESULTS, value.name).to_json()
        if isinstance(value, Input):
            optional = isinstance(value, OptionalInput)
            return Reference(INPUT, value.name, optional=optional).to_json()
        if isinstance(value, Mapping):
            return escaped({_key(key): self._written(each, step) for key, each in value.items()})
        if isinstance(value, list | tuple):
            return [self._written(each, step) for each in value]
        return escape(plain_json(value, step))

    def _check_types(self, task: Task[..., Any], bound: Mapping[str, Any], step: str) -> None:
        for name, value in bound.items():
            where = f"workflow {self.name!r}, step {step!r}"
            check_type(value, task.arguments.hint(name), where, name)

    # -- starting

    async def start(self, **given: Any) -> RunHandle:
        """Start a run with this input; see `options` for what else can be said of it."""
        return await self._runs.start_declared(self, given, {})

    def start_sync(self, **given: Any) -> RunHandle:
        """Start a run, from synchronous code."""
        return self._runs.start_declared_sync(self, given, {})

    def new_run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[[], Any]:
        """Return what makes a run of this workflow, as a call of a durable function."""
        return _new_run(self, args, kwargs, {})

    def options(
        self, *, key: str | None = None, priority: int | None = None,
        deadline: float | str | None = None, connection: Any = None,
    ) -> BoundWorkflow:  # fmt: skip
        """Return the same workflow with options for the runs that are started through it.

        Args:
            key: idempotency key: the same key and input give the same run back.
            priority: of its jobs: higher goes first.
            deadline: seconds (or ``"2h"``) after its start at which it fails.
            connection: your own open transaction; the run exists if and only if it commits.
        """
        seconds = None if deadline is None else seconds_of(deadline, "deadline")
        given = {"key": key, "priority": priority, "deadline": seconds, "connection": connection}
        return BoundWorkflow(self, given)


class BoundWorkflow:
    """A workflow with options for its runs. Made by ``flow.options(...)``."""

    def __init__(self, workflow: Workflow, options: Mapping[str, Any]) -> None:
        self._workflow = workflow
        self.name = workflow.name
        self._options = options

    def new_run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[[], Any]:
        """Return what makes a run of this workflow, as a call of a durable function."""
        return _new_run(self._workflow, args, kwargs, self._options)

    async def start(self, **given: Any) -> RunHandle:
        """Start a run with this input."""
        return await self._workflow._runs.start_declared(self._workflow, given, self._options)

    def start_sync(self, **given: Any) -> RunHandle:
        """Start a run, from synchronous code."""
        return self._workflow._runs.start_declared_sync(self._workflow, given, self._options)


def _new_run(
    workflow: Workflow, args: tuple[Any, ...], given: Mapping[str, Any], options: Mapping[str, Any]
) -> Callable[[], Any]:
    if args:
        raise ConfigError(f"workflow {workflow.name!r}: give its input by name")
    return lambda: workflow._runs.new_declared(workflow, given, options)


class RunHandle:
    """A run that was started, and the ways to follow it."""

    __slots__ = ("_reader", "_runs", "_seen", "existed", "id")
    _seen: Run  # unset until the run is looked at

    def __init__(
        self, runs: RunOperations, id: UUID, existed: bool = False,
        reader: ResultReader | None = None,
    ) -> None:  # fmt: skip
        self._runs = runs
        self._reader = reader  # of a durable function's result
        self.id = id
        self.existed = existed  # its idempotency key named it before: nothing new was started

    def __repr__(self) -> str:
        seen = f": {self._seen.words()}" if hasattr(self, "_seen") else ""
        return f"<RunHandle {self.id}{seen}>"

    def _repr_html_(self) -> str:
        """Show the run in a notebook, as it was seen last. `follow` shows it as it changes."""
        if hasattr(self, "_seen"):
            return self._seen._repr_html_()
        return as_html("run", "started", Bar("", 0, None), {"id": str(self.id)})

    async def status(self) -> Run:
        """Return the run as it is now."""
        self._seen = await self._runs.get(self.id)
        return self._seen

    async def watch(self, *, every: float = 0.5) -> AsyncIterator[Run]:
        """Yield the run as it is, and again when its state, steps or status have changed; at last as it
        has ended. It is looked at up to `every` seconds apart, more often in the beginning.
        """
        seen: Any = None
        pause = min(0.02, every)
        while True:
            run = await self.status()
            now = (run.state, run.paused_at, run.cancel_requested_at, run.steps, run.ended_steps,
                   run.status, run.problem)  # fmt: skip
            if now != seen:
                seen = now
                yield run
            if run.state != RunState.RUNNING.label:
                return
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, every)

    async def follow(self, timeout: float | None = None, *, every: float = 0.5) -> Run:
        """Wait until the run has ended, and show its progress: a bar in a terminal, HTML in a notebook.

        Returns the run. `TimeoutError` after `timeout` seconds.
        """
        try:
            async with asyncio.timeout(timeout):
                return await display.follow(self.watch(every=every))
        except TimeoutError:
            raise TimeoutError(f"run {self.id} has not ended after {timeout:g} s") from None

    async def wait(self, timeout: float | None = None) -> Run:
        """Return the run once it has ended; `TimeoutError` after `timeout` seconds. 0 looks once."""
        once = timeout is not None and timeout <= 0
        async with asyncio.timeout(None if once else timeout):
            pause = 0.01
            while not await self._runs.has_ended(self.id):
                if once:
                    raise TimeoutError(f"run {self.id} has not ended")
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, 0.5)
            return await self.status()

    async def result(self, timeout: float | None = None) -> Any:
        """Return the run's result: that of its last step, or those of several by name.

        That of a durable function is of the type that the function returns. Raises `RunFailed` if the
        run didn't succeed, `ResultUnavailable` if its result doesn't fit that type, and `TimeoutError`
        if it hasn't ended in time.
        """
        run = await self.wait(timeout)
        if run.state != RunState.SUCCEEDED.label:
            raise RunFailed(run)
        result = await self._runs.result(self.id)
        if self._reader is None:
            return result
        try:
            return self._reader.read(result)
        except (ValueError, msgspec.ValidationError) as error:
            raise ResultUnavailable(
                f"run {self.id} succeeded, but its stored result doesn't fit the type that the function "
                f"returns here: {error}. `app.runs.result()` has it as it was stored"
            ) from None

    async def steps(self) -> list[RunStep]:
        """Return all its steps, by their numbers."""
        steps = page = await self._runs.steps(self.id, limit=_PAGE)
        while len(page) == _PAGE:
            page = await self._runs.steps(self.id, after=page[-1].number, limit=_PAGE)
            steps = [*steps, *page]
        return steps

    async def send(self, signal: str, payload: Any = None, *, once: str | None = None) -> Any:
        """Send a signal to it: its durable function takes it with ``ctx.wait(signal)``.

        `once`: the same text again is not another signal.
        """
        return await self._runs.send(self.id, signal, payload, once=once)

    async def explain(self, step: str | None = None) -> Explanation:
        """Explain what it waits for, or one of its steps, and what to do."""
        return await self._runs.explain(self.id, step)

    async def cancel(self) -> RunChanged:
        """Cancel it: what waits is closed, what runs is asked to stop, `always` steps still run."""
        return await self._runs.cancel(self.id)

    async def pause(self) -> RunChanged:
        """Start no further steps until it is resumed."""
        return await self._runs.pause(self.id)

    async def resume(self) -> RunChanged:
        """Go on: after a pause, or from the steps that failed or were cancelled."""
        return await self._runs.resume(self.id)

    async def retry(self, step: str) -> RunChanged:
        """Run a step again, and what comes after it."""
        return await self._runs.retry(self.id, step)

    async def skip(self, step: str, result: Any = None) -> RunChanged:
        """Let a step count as succeeded with this result, without running it."""
        return await self._runs.skip(self.id, step, result)

    async def members(
        self, step: str, *, after: int = -1, state: str | None = None, limit: int = 100
    ) -> list[MapMember]:
        """Return members of a map after a number: their items, results and errors.

        `state`: only those that are waiting, running, succeeded, failed or cancelled.
        """
        return await self._runs.members(self.id, step, after=after, state=state, limit=limit)

    async def retry_members(self, step: str, numbers: Sequence[int] | None = None) -> RunChanged:
        """Run failed members of a map again, all or some, and what comes after the map."""
        return await self._runs.retry_members(self.id, step, numbers)

    def status_sync(self) -> Run:
        """Return the run as it is now, from synchronous code."""
        return sync_bridge.call(self.status, "status")

    def wait_sync(self, timeout: float | None = None) -> Run:
        """Return the run once it has ended, from synchronous code. See `wait`."""
        return sync_bridge.call(lambda: self.wait(timeout), "wait")

    def watch_sync(self, *, every: float = 0.5) -> Iterator[Run]:
        """Yield the run whenever it has changed, from synchronous code. See `watch`."""
        return sync_bridge.iterate(lambda: self.watch(every=every), "watch")

    def follow_sync(self, timeout: float | None = None, *, every: float = 0.5) -> Run:
        """Wait with the progress shown, from synchronous code. See `follow`."""
        return sync_bridge.call(lambda: self.follow(timeout, every=every), "follow")

    def steps_sync(self) -> list[RunStep]:
        """Return all its steps, by their numbers, from synchronous code. See `steps`."""
        return sync_bridge.call(self.steps, "steps")

    def send_sync(self, signal: str, payload: Any = None, *, once: str | None = None) -> Any:
        """Send a signal to it, from synchronous code. See `send`."""
        return sync_bridge.call(lambda: self.send(signal, payload, once=once), "send")

    def explain_sync(self, step: str | None = None) -> Explanation:
        """Explain what it waits for, from synchronous code. See `explain`."""
        return sync_bridge.call(lambda: self.explain(step), "explain")

    def cancel_sync(self) -> RunChanged:
        """Cancel it, from synchronous code. See `cancel`."""
        return sync_bridge.call(self.cancel, "cancel")

    def pause_sync(self) -> RunChanged:
        """Start no further steps until it is resumed, from synchronous code. See `pause`."""
        return sync_bridge.call(self.pause, "pause")

    def resume_sync(self) -> RunChanged:
        """Go on after a pause, or from what failed, from synchronous code. See `resume`."""
        return sync_bridge.call(self.resume, "resume")

    def retry_sync(self, step: str) -> RunChanged:
        """Run a step again, and what comes after it, from synchronous code. See `retry`."""
        return sync_bridge.call(lambda: self.retry(step), "retry")

    def skip_sync(self, step: str, result: Any = None) -> RunChanged:
        """Let a step count as succeeded, from synchronous code. See `skip`."""
        return sync_bridge.call(lambda: self.skip(step, result), "skip")

    def members_sync(
        self, step: str, *, after: int = -1, state: str | None = None, limit: int = 100
    ) -> list[MapMember]:
        """Return members of a map after a number, from synchronous code. See `members`."""
        return sync_bridge.call(
            lambda: self.members(step, after=after, state=state, limit=limit), "members"
        )

    def retry_members_sync(self, step: str, numbers: Sequence[int] | None = None) -> RunChanged:
        """Run failed members of a map again, from synchronous code. See `retry_members`."""
        return sync_bridge.call(lambda: self.retry_members(step, numbers), "retry_members")

    def result_sync(self, timeout: float | None = None) -> Any:
        """Return the run's result, from synchronous code."""
        return sync_bridge.call(lambda: self.result(timeout), "result")


def check_type(value: Any, hint: Any, where: str, name: str) -> None:
    """Refuse a step whose task returns another type than the argument's, where both are known."""
    if isinstance(value, Step) and not _fits(value.returns, hint):
        raise ConfigError(
            f"{where}: argument {name!r} is a {_type_name(hint)}, but step {value.name!r} returns a "
            f"{_type_name(value.returns)}"
        )


def share_of(value: Any, where: str) -> int | float:
    """Return how many may fail, of which a share may be written as ``"1%"``."""
    if not isinstance(value, str):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(
                f"{where}: tolerate is a number or a share such as '1%', not {value!r}"
            )
        return value
    try:
        percent = float(value.removesuffix("%"))
    except ValueError:
        percent = -1
    if not value.endswith("%") or not 0 <= percent <= 100:
        raise ConfigError(f"{where}: tolerate is a number or a share such as '1%', not {value!r}")
    return percent / 100


def map_arguments(
    task: Task[..., Any], item: str | None, kwargs: Mapping[str, Any], where: str
) -> tuple[dict[str, Any], str]:
    """Return what every call of a map gets, and the name of the argument that takes the item."""
    described = task.arguments.describe().arguments
    free = [name for name in described if name not in kwargs]
    if item is None and not free:
        raise ConfigError(f"{where}: task {task.name!r} has no argument left for the item")
    chosen = item or free[0]
    if chosen not in described or chosen in kwargs:
        raise ConfigError(
            f"{where}: task {task.name!r} has no argument {chosen!r} left for the item"
        )
    bound = task.arguments.bind_some((), dict(kwargs))
    for name in free:
        if name != chosen:
            bound[name] = Input(name) if described[name].required else OptionalInput(name)
    return bound, chosen


def task_defaults(task: Task[..., Any] | Workflow) -> dict[str, Any]:
    """Return what a task declares for its jobs, as the options of a step."""
    if isinstance(task, Workflow):
        return {}
    own = task.options_
    return {
        "queue": own.queue, "needs": own.needs, "priority": own.priority, "timeout": own.timeout,
        "max_attempts": own.retry.max_attempts, "guarantee": own.guarantee.label,
    }  # fmt: skip


def _key(key: Any) -> str:
    """Return the key of an object as JSON has it: a text."""
    return key if isinstance(key, str) else next(iter(plain_json({key: None}, "key")))


def _several(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list | tuple) else (value,)


def _step_name(value: Any, where: str) -> str:
    if isinstance(value, Step):
        return value.name
    if isinstance(value, str):
        return value
    raise ConfigError(f"step {where!r}: {value!r} is not a step of this workflow")


def _fits(returned: Any, wanted: Any) -> bool:
    """Return whether a value of one type may be used as the other. Only plain classes are compared."""
    plain = (str, int, float, bool, list, dict, bytes)
    one = typing.get_origin(returned) or returned
    two = typing.get_origin(wanted) or wanted
    if one not in plain or two not in plain:
        return True
    return one is two or (one in (int, bool) and two in (int, float) and one is not two)


def _type_name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)
