"""Workflows: graphs of tasks that an application declares, and the ways to start them."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rota.core.json_values import plain_json
from rota.core.time.interval import seconds_of
from rota.core.workflow.graph import Graph
from rota.core.workflow.maps import check_mapped
from rota.core.workflow.model import STREAM, Definition, RuleName, StepDefinition
from rota.core.workflow.references import (
    INPUT,
    RESULTS,
    STEP,
    Reference,
    escape,
    escaped,
    read_reference,
)
from rota.errors import ConfigError
from rota.generators import GeneratorTask, not_in_a_map
from rota.run_handle import RunHandle, RunOperations
from rota.task import P, R, Task

_OPTIONS = (
    "after", "rule", "when", "name", "tolerate", "optional", "queue", "needs", "priority",
    "max_attempts", "timeout", "resources", "near", "near_patience",
)  # fmt: skip
_COMPUTED_KEYS = ("concurrency_key", "order_key")  # where a job is submitted

MAP_OPTIONS = ("over", "size", "at_once", "each", "item")


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
            tolerate: how many of the steps before it may fail: a number, or a share, as
                ``"1%"`` or 0.01.
            optional: its failure doesn't fail the run, and steps after it go on.
            queue, needs, priority, max_attempts, timeout: as for a submit.
        """
        options, kwargs = self._split(task, args, given)
        name = options.pop("name", None) or self._free_name(task.name)
        if name in self._steps:
            raise ConfigError(f"workflow {self.name!r}: two steps are named {name!r}")
        arguments = self._arguments(task, args, kwargs, name)
        if "tolerate" in options:
            where = f"workflow {self.name!r}, step {name!r}"
            options["tolerate"] = share_of(options["tolerate"], where)
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

    async def start_many(self, inputs: Iterable[Mapping[str, Any]]) -> list[RunHandle]:
        """Start many runs in one transaction, all or none: one for each input.

        Far cheaper than one by one: ``await flow.start_many({"day": day} for day in days)``.
        """
        return await self._runs.start_all_declared(self, inputs, {})

    def start_many_sync(self, inputs: Iterable[Mapping[str, Any]]) -> list[RunHandle]:
        """Start many runs at once, from synchronous code."""
        return self._runs.start_all_declared_sync(self, inputs, {})

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

    async def start_many(self, inputs: Iterable[Mapping[str, Any]]) -> list[RunHandle]:
        """Start many runs in one transaction, all or none: one for each input."""
        return await self._workflow._runs.start_all_declared(self._workflow, inputs, self._options)

    def start_many_sync(self, inputs: Iterable[Mapping[str, Any]]) -> list[RunHandle]:
        """Start many runs at once, from synchronous code."""
        return self._workflow._runs.start_all_declared_sync(self._workflow, inputs, self._options)


def _new_run(
    workflow: Workflow, args: tuple[Any, ...], given: Mapping[str, Any], options: Mapping[str, Any]
) -> Callable[[], Any]:
    if args:
        raise ConfigError(f"workflow {workflow.name!r}: give its input by name")
    return lambda: workflow._runs.new_declared(workflow, given, options)


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
        "resources": own.resources, "near": own.near, "near_patience": own.near_patience,
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
