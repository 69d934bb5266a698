"""Calls that are composed to workflows: ``task.s(...)``, chains, groups and chords.

A composition is stored as a workflow without a name of its own: its tasks, and which of their arguments
come from other steps. What is given in the calls is the input of the run, so that compositions of the
same shape share one definition, under a name made of its digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, overload

import msgspec

from rota.core.json_values import plain_json
from rota.core.signature import missing
from rota.core.time.interval import seconds_of
from rota.core.workflow.graph import MOST_STEPS, Graph
from rota.core.workflow.model import INLINE, Definition, RuleName, StepDefinition
from rota.core.workflow.references import INPUT, STEP, Reference
from rota.errors import ConfigError, InvalidArguments
from rota.lib.sync_bridge import sync_bridge
from rota.run_handle import RunHandle
from rota.workflow import Step, check_type, task_defaults

if TYPE_CHECKING:
    from rota.task import Task

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
A = TypeVar("A")
A_contra = TypeVar("A_contra", contravariant=True)
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")

_OPTIONS = (
    "queue", "needs", "priority", "max_attempts", "timeout", "optional", "name", "resources", "near",
    "near_patience",
)  # fmt: skip
# The steps whose results a part gives: one, or those of a group.
Outputs: TypeAlias = "Step | list[Outputs]"


class Composed(msgspec.Struct, frozen=True):
    """A workflow that was composed. `outputs`: the names of the steps whose results are its own."""

    graph: Graph
    given: dict[str, Any]
    outputs: Any

    @property
    def name(self) -> str:
        return self.graph.definition.name


class _Link:
    """A part of a composition."""

    def _tasks(self) -> Iterable[Task[..., Any]]:
        raise NotImplementedError

    def _add(self, builder: _Builder, before: Outputs | None) -> Outputs:
        """Add the steps after others, and return those whose results are the part's."""
        raise NotImplementedError


class Part(_Link, Generic[R_co]):
    """A composition that can be started: it lacks no argument."""

    async def start(self) -> Started[R_co]:
        """Start a run of it."""
        return await _Starting(self, {}).start()

    def start_sync(self) -> Started[R_co]:
        """Start a run of it, from synchronous code."""
        return _Starting(self, {}).start_sync()

    def options(
        self, *, key: str | None = None, priority: int | None = None,
        deadline: float | str | None = None, connection: Any = None,
    ) -> _Starting[R_co]:  # fmt: skip
        """Return the composition with options for its run.

        Args:
            key: idempotency key: the same key, tasks and arguments give the same run back.
            priority: of its jobs: higher goes first.
            deadline: seconds (or ``"2h"``) after its start at which it fails.
            connection: your own open transaction; the run exists if and only if it commits.
        """
        seconds = None if deadline is None else seconds_of(deadline, "deadline")
        given = {"key": key, "priority": priority, "deadline": seconds, "connection": connection}
        return _Starting(self, given)


class _Starting(Generic[R_co]):
    """A composition with options for its run. Made by ``part.options(...)``."""

    def __init__(self, part: _Link, options: Mapping[str, Any]) -> None:
        self._part = part
        self._options = options

    async def start(self) -> Started[R_co]:
        """Start a run."""
        runs, composed = self._composed()
        return Started.of(
            await runs.start_declared(composed, composed.given, self._options), composed
        )

    def start_sync(self) -> Started[R_co]:
        """Start a run, from synchronous code."""
        runs, composed = self._composed()
        return Started.of(
            runs.start_declared_sync(composed, composed.given, self._options), composed
        )

    def _composed(self) -> tuple[Any, Composed]:
        found = {id(task._submissions): task for task in self._part._tasks()}
        if len(found) > 1:
            names = " and ".join(repr(task.name) for task in list(found.values())[:2])
            raise ConfigError(f"tasks {names} belong to different apps: compose tasks of one app")
        builder = _Builder()
        outputs = self._part._add(builder, None)
        [task] = found.values()
        return task._submissions.runs, builder.composed(outputs)


class Started(RunHandle, Generic[R_co]):
    """The run of a composition."""

    __slots__ = ("_outputs",)
    _outputs: Any

    @classmethod
    def of(cls, run: RunHandle, composed: Composed) -> Started[R_co]:
        """Return the same run, with the type of its result."""
        made = cls(run._runs, run.id, run.existed)
        made._outputs = composed.outputs
        return made

    async def result(self, timeout: float | None = None) -> R_co:
        """Return the result: of a chain that of its last task, of a group a list.

        Raises `RunFailed` if it didn't succeed, `TimeoutError` if it hasn't ended in time.
        """
        found = await super().result(timeout)
        result: R_co = found if isinstance(self._outputs, str) else self._listed(found)
        return result

    def result_sync(self, timeout: float | None = None) -> R_co:
        """Return the result, from synchronous code."""
        return sync_bridge.call(lambda: self.result(timeout), "result")

    def _listed(self, found: Any) -> Any:
        alone = len(_flat(self._outputs)) == 1

        def value(output: Any) -> Any:
            if isinstance(output, str):
                return found if alone else found[output]
            return [value(each) for each in output]

        return value(self._outputs)


class _Bound(_Link):
    """A task with arguments, of which some may be missing."""

    def __init__(
        self, task: Task[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], *,
        alone: bool = False, options: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self._task = task
        self._args = args
        self._kwargs = dict(kwargs)
        self._alone = alone  # it doesn't take the result of the part before it
        self._set = dict(options or {})

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._task.name}>"

    def _changed(self, options: Mapping[str, Any]) -> Any:
        if unknown := [name for name in options if name not in _OPTIONS]:
            raise ConfigError(
                f"task {self._task.name!r}: {unknown[0]!r} is none of {', '.join(_OPTIONS)}"
            )
        merged = {**self._set, **options}
        return type(self)(self._task, self._args, self._kwargs, alone=self._alone, options=merged)

    def _tasks(self) -> Iterable[Task[..., Any]]:
        return (self._task,)

    def _add(
        self, builder: _Builder, before: Outputs | None, rule: RuleName = "all_succeeded"
    ) -> Outputs:
        takes = before is not None and not self._alone
        args = (before, *self._args) if takes else self._args
        try:
            bound = self._task.arguments.bind_some(args, self._kwargs)
        except InvalidArguments as error:
            if takes:
                raise InvalidArguments(
                    f"{error}. The result of the part before it is its first argument; "
                    f"{self._task.name}.si(...) takes none"
                ) from None
            raise
        return builder.add(self._task, bound, before, rule, self._set)


class Call(_Bound, Part[R_co]):
    """A task with its arguments. Made by ``task.s(...)`` and ``task.si(...)``."""

    def set(self, **options: Any) -> Call[R_co]:
        """Return the call with options of its step: ``queue``, ``needs``, ``priority``,
        ``max_attempts``, ``timeout``, ``optional``, ``name``."""
        changed: Call[R_co] = self._changed(options)
        return changed


class Partial(_Bound, Generic[A_contra, R_co]):
    """A task without its first argument, which is the result of the part before it. Made by
    ``task.s(...)``."""

    def set(self, **options: Any) -> Partial[A_contra, R_co]:
        """Return the call with options of its step; see `Call.set`."""
        changed: Partial[A_contra, R_co] = self._changed(options)
        return changed


def make_call(task: Task[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return a call, or a partial one if arguments are missing."""
    bound = task.arguments.bind_some(args, dict(kwargs))
    lacking = _missing(task, bound) is not None
    return (Partial if lacking else Call)(task, args, kwargs)


class Chain(Part[R_co]):
    """Parts that run one after the other. Made by `chain`."""

    def __init__(self, parts: Sequence[_Link]) -> None:
        if not parts:
            raise ConfigError("a chain needs at least one part")
        self._parts = [_checked(part, "chain") for part in parts]

    def _tasks(self) -> Iterable[Task[..., Any]]:
        return (task for part in self._parts for task in part._tasks())

    def _add(self, builder: _Builder, before: Outputs | None) -> Outputs:
        outputs = before
        for part in self._parts:
            outputs = part._add(builder, outputs)
        assert outputs is not None
        return outputs


class Group(Part[R_co]):
    """Parts that run side by side, and perhaps a callback after them. Made by `group` and `chord`."""

    def __init__(
        self, parts: Sequence[_Link], callback: _Link | None = None,
        rule: RuleName = "all_succeeded",
    ) -> None:  # fmt: skip
        if not parts:
            raise ConfigError("a group needs at least one part")
        self._parts = [_checked(part, "group") for part in parts]
        if rule != "all_succeeded" and not isinstance(callback, _Bound):
            raise ConfigError("ended: must be a call of one task, such as task.s()")
        self._callback = None if callback is None else _checked(callback, "group")
        self._rule: RuleName = rule

    def _tasks(self) -> Iterable[Task[..., Any]]:
        parts = self._parts if self._callback is None else [*self._parts, self._callback]
        return (task for part in parts for task in part._tasks())

    def _add(self, builder: _Builder, before: Outputs | None) -> Outputs:
        outputs: Outputs = [part._add(builder, before) for part in self._parts]
        if self._callback is None:
            return outputs
        if isinstance(self._callback, _Bound):
            return self._callback._add(builder, outputs, self._rule)
        return self._callback._add(builder, outputs)


def _checked(part: Any, where: str) -> _Link:
    if not isinstance(part, _Link):
        raise ConfigError(f"{where}: {part!r} is not a call: write task.s(...)")
    return part


# -- composing


@overload
def chain(a: Part[A], /) -> Chain[A]: ...
@overload
def chain(a: Part[A], b: Partial[A, B] | Part[B], /) -> Chain[B]: ...
@overload
def chain(a: Part[A], b: Partial[A, B] | Part[B], c: Partial[B, C] | Part[C], /) -> Chain[C]: ...
@overload
def chain(
    a: Part[A], b: Partial[A, B] | Part[B], c: Partial[B, C] | Part[C],
    d: Partial[C, D] | Part[D], /,
) -> Chain[D]: ...  # fmt: skip
@overload
def chain(
    a: Part[A], b: Partial[A, B] | Part[B], c: Partial[B, C] | Part[C],
    d: Partial[C, D] | Part[D], e: Partial[D, E] | Part[E], /, *rest: Any,
) -> Chain[Any]: ...  # fmt: skip


def chain(*parts: Any) -> Any:
    """Run parts one after the other. The result of each is the first argument of the next.

    ``task.si(...)`` takes no result of the part before it. A part may be a call, a group or a chain.
    """
    return Chain(parts)


@overload
def group(*parts: Part[R], then: Partial[list[R], B] | Part[B]) -> Part[B]: ...
@overload
def group(*parts: Part[R], ended: Partial[list[R | None], B] | Part[B]) -> Part[B]: ...
@overload
def group(*parts: Part[R]) -> Group[list[R]]: ...
@overload
def group(*parts: Partial[A, R]) -> Partial[A, list[R]]: ...
@overload
def group(parts: Iterable[Part[R]], /, *, then: Partial[list[R], B] | Part[B]) -> Part[B]: ...
@overload
def group(
    parts: Iterable[Part[R]], /, *, ended: Partial[list[R | None], B] | Part[B]
) -> Part[B]: ...
@overload
def group(parts: Iterable[Part[R]], /) -> Group[list[R]]: ...


def group(*parts: Any, then: Any = None, ended: Any = None) -> Any:
    """Run parts side by side. The result is the list of theirs, in their order.

    Args:
        parts: calls, chains or groups; or one iterable of them.
        then: runs when all have succeeded, with the list of their results as its first argument.
        ended: runs when all have ended, however; None stands for the results of those that failed.
    """
    if len(parts) == 1 and not isinstance(parts[0], _Link) and isinstance(parts[0], Iterable):
        parts = tuple(parts[0])
    if then is not None and ended is not None:
        raise ConfigError("a group has either `then` or `ended`")
    if ended is not None:
        return Group(parts, ended, "all_ended")
    return Group(parts, then)


def chord(parts: Iterable[Part[R]], body: Partial[list[R], B] | Part[B]) -> Part[B]:
    """Run parts side by side, and then a task with the list of their results: ``group(then=...)``."""
    return Group(tuple(parts), body)


# -- building


class _Builder:
    """Collects the steps of a composition, and the input of its run."""

    def __init__(self) -> None:
        self._steps: dict[str, StepDefinition] = {}
        self._given: dict[str, Any] = {}

    def add(
        self, task: Task[..., Any], bound: Mapping[str, Any], before: Outputs | None,
        rule: RuleName, options: Mapping[str, Any],
    ) -> Step:  # fmt: skip
        """Add a step that calls a task. Steps among the arguments stand for their results."""
        if (lacking := _missing(task, bound)) is not None:
            raise InvalidArguments(missing(task.name, lacking), field=lacking)
        name = self._free_name(options.get("name") or task.name)
        arguments: dict[str, Any] = {}
        constants: dict[str, Any] = {}
        for argument, value in bound.items():
            if before is not None and value is before:
                check_type(value, task.arguments.hint(argument), f"step {name!r}", argument)
                arguments[argument] = _referring(before)
            elif (
                before is not None and isinstance(value, tuple) and value[:1] == (before,)
            ):  # *args
                if len(value) > 1:
                    constants[argument] = [plain_json(each, argument) for each in value[1:]]
                others = range(len(value) - 1)
                arguments[argument] = [
                    _referring(before),
                    *(Reference(INPUT, name, (argument, each)).to_json() for each in others),
                ]
            else:
                constants[argument] = plain_json(value, argument)
                arguments[argument] = Reference(INPUT, name, (argument,)).to_json()
        if constants:
            self._given[name] = constants
        own = {field: value for field, value in options.items() if field != "name"}
        durable = hasattr(task, "graph")  # a durable function, which is run as a workflow is
        fields: dict[str, Any] = {} if durable else task_defaults(task)
        fields |= {"workflow" if durable else "task": task.name, **own}
        self._steps[name] = StepDefinition(
            name=name, arguments=arguments, after=[] if before is None else _flat(_names(before)),
            rule=rule, **fields,
        )  # fmt: skip
        if len(self._steps) > MOST_STEPS:
            raise ConfigError(f"a composition has at most {MOST_STEPS:,} steps")
        return Step(name, returns=task.arguments.returns)

    def composed(self, outputs: Outputs) -> Composed:
        steps = tuple(self._steps.values())
        text = msgspec.json.encode(steps, order="deterministic")
        name = INLINE + hashlib.sha256(text).hexdigest()[:24]
        tasks = ", ".join(dict.fromkeys(step.task or step.workflow or "" for step in steps))
        about = tasks if len(tasks) <= 200 else f"{tasks[:197]}..."
        graph = Graph(Definition(name=name, steps=steps, description=about))
        return Composed(graph, self._given, _names(outputs))

    def _free_name(self, name: str) -> str:
        if name not in self._steps:
            return name
        number = len(self._steps) + 1  # its place: unique, since names are only added
        while f"{name}_{number}" in self._steps:
            number += 1
        return f"{name}_{number}"


def _missing(task: Task[..., Any], bound: Mapping[str, Any]) -> str | None:
    for name, argument in task.arguments.describe().arguments.items():
        if argument.required and name not in bound:
            return name
    return None


def _referring(value: Outputs) -> Any:
    if isinstance(value, Step):
        return Reference(STEP, value.name).to_json()
    return [_referring(each) for each in value]


def _names(outputs: Outputs) -> Any:
    return outputs.name if isinstance(outputs, Step) else [_names(each) for each in outputs]


def _flat(names: Any) -> list[str]:
    return [names] if isinstance(names, str) else [one for each in names for one in _flat(each)]
