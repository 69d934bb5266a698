"""Checks a definition and compiles it to the numbered steps that the tables store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from rota.config import check_name, is_internal_task
from rota.core.resources import check_near, demands, parse_job
from rota.core.workflow.expressions import Condition
from rota.core.workflow.model import (
    AT_ONCE,
    MOST_AT_ONCE,
    MOST_SIZE,
    STREAM,
    Definition,
    Rule,
    StepDefinition,
    StepKind,
)
from rota.core.workflow.references import (
    INPUT,
    RESULTS,
    STEP,
    Reference,
    find_references,
    read_reference,
    renamed,
)
from rota.errors import ConfigError
from rota.model import Guarantee

MOST_STEPS = 50_000
END = "(end)"


class CompiledStep(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `rota.workflow_step`. Numbers are topological: a successor's is higher."""

    number: int
    name: str
    kind: StepKind
    task: str | None
    queue: str | None
    needs: list[str] | None
    priority: int | None
    max_attempts: int | None
    timeout: float | None
    guarantee: int | None
    rule: Rule
    condition: str | None
    tolerated: int
    optional: bool
    arguments: dict[str, Any]
    predecessors: int
    successors: list[int]
    map: dict[str, Any] | None = None


class Graph:
    """A checked definition, in topological order."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.steps = {step.name: step for step in definition.steps}
        self._check_names()
        self.predecessors = {step.name: self._predecessors(step) for step in definition.steps}
        self.order = self._ordered()
        self.numbers = {name: number for number, name in enumerate(self.order)}
        for step in definition.steps:
            self._check_step(step)
        if definition.result is not None and definition.result not in self.steps:
            raise self._refused(
                f"its result is that of {definition.result!r}, which is no step", field="result"
            )

    def _refused(
        self, problem: str, step: str | None = None, field: str | None = None
    ) -> ConfigError:
        where = f", step {step!r}" if step is not None else ""
        message = f"workflow {self.definition.name!r}{where}: {problem}"
        return ConfigError(message, field=field, subject=step)

    def _check_names(self) -> None:
        check_name("workflow", self.definition.name)
        if not self.definition.steps:
            raise self._refused("it has no steps", field="steps")
        if len(self.definition.steps) > MOST_STEPS:
            raise self._refused(
                f"it has {len(self.definition.steps):,} steps, the limit is {MOST_STEPS:,}: "
                "map a task over a list instead"
            )
        seen: set[str] = set()
        for step in self.definition.steps:
            check_name("step", step.name)
            if step.name in seen:
                raise self._refused("two steps have this name", step.name)
            if step.name == "input":
                raise self._refused("the name means the run's input: choose another", step.name)
            seen.add(step.name)
            kinds = [
                kind for kind in ("task", "workflow", "map") if getattr(step, kind) is not None
            ]
            if len(kinds) != 1:
                raise self._refused("name a task or a workflow to run, or a task to map", step.name)
            task = step.task or step.map
            if task is not None and is_internal_task(task):
                raise self._refused(
                    f"task {task!r} is internal: Rota submits its jobs itself", step.name, kinds[0]
                )
            self._check_map(step)

    def _check_map(self, step: StepDefinition) -> None:
        """Refuse what only maps have in other steps, and in maps what can't be."""
        if step.map is None:
            for field in ("over", "item", "size", "at_once"):
                if getattr(step, field) is not None:
                    raise self._refused(f"only a map has {field!r}", step.name, field)
            return
        over = step.over
        is_reference = isinstance(over, Mapping) and read_reference(over) is not None
        if not (isinstance(over, list | tuple) or is_reference or over == STREAM):
            raise self._refused(
                "over must be a list, a step or a value of the input that is one, not "
                f"{over!r}", step.name, "over",
            )  # fmt: skip
        for field, most in (("size", MOST_SIZE), ("at_once", MOST_AT_ONCE)):
            value = getattr(step, field)
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most
            ):
                raise self._refused(
                    f"{field} must be a whole number from 1 to {most:,}, not {value!r}",
                    step.name, field,
                )  # fmt: skip
        if step.each not in ("chunk", "job"):
            raise self._refused(f"each must be chunk or job, not {step.each!r}", step.name, "each")
        if step.each == "job" and step.size is not None:
            raise self._refused(
                'size has no meaning with each="job": every member is a job', step.name, "size"
            )
        if step.each == "chunk" and step.guarantee not in (None, "at_least_once"):
            raise self._refused(
                f'a member of a chunk can\'t be {step.guarantee}: map with each="job"',
                step.name, "each",
            )  # fmt: skip

    def _predecessors(self, step: StepDefinition) -> list[str]:
        """Return the steps that must end first, each once: named, read from, or asked about."""
        names = [("after", name) for name in step.after]
        names += [
            ("arguments", str(each.name))
            for each in find_references(step.arguments)
            if each.kind in (STEP, RESULTS)
        ]
        names += [
            ("over", str(each.name)) for each in find_references(step.over) if each.kind == STEP
        ]
        names += [("when", name) for name in sorted(self._condition_names(step))]
        for field, name in names:
            if name not in self.steps:
                known = ", ".join(list(self.steps)[:20])
                raise self._refused(f"there is no step {name!r}; known: {known}", step.name, field)
        return list(dict.fromkeys(name for _, name in names))

    def _condition_names(self, step: StepDefinition) -> set[str]:
        if step.when is None:
            return set()
        try:
            names = Condition(step.when).names - {"input"}
        except ConfigError as error:
            raise self._refused(str(error), step.name, "when") from None
        if unknown := sorted(names - set(self.steps)):
            raise self._refused(
                f"the condition {step.when!r} names {unknown[0]!r}, which is neither a step nor "
                "`input`", step.name, "when",
            )  # fmt: skip
        return names

    def _ordered(self) -> list[str]:
        """Return the names in topological order, as declared where that leaves a choice."""
        place = {name: number for number, name in enumerate(self.steps)}
        open_ends = {name: len(before) for name, before in self.predecessors.items()}
        after: dict[str, list[str]] = {name: [] for name in self.steps}
        for name, before in self.predecessors.items():
            for each in before:
                after[each].append(name)
        ready = [name for name, count in open_ends.items() if count == 0]
        order: list[str] = []
        while ready:
            following: list[str] = []
            for name in ready:
                order.append(name)
                for each in after[name]:
                    open_ends[each] -= 1
                    if open_ends[each] == 0:
                        following.append(each)
            ready = sorted(following, key=place.__getitem__)
        if len(order) < len(self.steps):
            cycle = self._cycle({name for name, count in open_ends.items() if count > 0})
            raise self._refused(f"its steps wait for each other in a cycle: {' -> '.join(cycle)}")
        return order

    def _cycle(self, left: set[str]) -> list[str]:
        """Return one cycle among steps that could not be ordered, as a path back to its start."""
        name = next(name for name in self.steps if name in left)
        path: list[str] = []
        while name not in path:
            path.append(name)
            name = next(each for each in self.predecessors[name] if each in left)
        found = path[path.index(name) :][::-1]
        return [found[-1], *found]

    def _check_step(self, step: StepDefinition) -> None:
        before = self.predecessors[step.name]
        try:
            rule = Rule.parse(step.rule)
        except ConfigError as error:
            raise self._refused(str(error), step.name, "rule") from None
        if rule in (Rule.ONE_SUCCEEDED, Rule.ONE_FAILED) and not before:
            raise self._refused(
                f"the rule {step.rule} can never be met: it comes after no step", step.name, "rule"
            )
        if step.name in before:
            raise self._refused("it waits for itself", step.name)
        tolerate = step.tolerate
        for each in find_references(step.arguments):
            if each.kind == RESULTS and self.steps[str(each.name)].map is None:
                raise self._refused(
                    f"{RESULTS} is of maps, and {each.name!r} is none: write {STEP}", step.name,
                    "arguments",
                )  # fmt: skip
        if tolerate and rule is not Rule.ALL_SUCCEEDED and step.map is None:
            raise self._refused(
                f"tolerate has no meaning with the rule {step.rule}", step.name, "tolerate"
            )
        if isinstance(tolerate, bool) or tolerate < 0 or (tolerate > 1 and tolerate % 1):
            raise self._refused(
                f"tolerate is a number of {'members' if step.map else 'steps'} that may fail, or a "
                f"share of them from 0 to 1, not {tolerate!r}", step.name, "tolerate",
            )  # fmt: skip
        try:
            _check_place(step)
        except ConfigError as error:
            field = next(iter(error.fields), None)
            raise self._refused(str(error), step.name, field) from None

    # -- what else the definition says

    def input_names(self) -> dict[str, bool]:
        """Return the names that steps read from the input, and whether each is required."""
        names: dict[str, bool] = {}
        for reference in self._references(INPUT):
            name = str(reference.name)
            names[name] = names.get(name, False) or not reference.optional
        return names

    def _references(self, kind: str) -> Iterable[Reference]:
        for step in self.definition.steps:
            for reference in find_references([step.arguments, step.over]):
                if reference.kind == kind:
                    yield reference

    def sinks(self) -> list[str]:
        """Return the steps that no other step comes after."""
        inner = {name for before in self.predecessors.values() for name in before}
        return [name for name in self.order if name not in inner]

    def result_step(self) -> str | None:
        """Return the step whose result is the run's, if there is one."""
        sinks = self.sinks()
        return self.definition.result or (sinks[0] if len(sinks) == 1 else None)

    def compiled(self) -> list[CompiledStep]:
        """Return the rows to store, the hidden end included."""
        successors: dict[str, list[int]] = {name: [] for name in self.order}
        end = len(self.order)
        last = set(self.sinks())
        for name in self.order:
            for each in self.predecessors[name]:
                successors[each].append(self.numbers[name])
            if self.steps[name].rule in ("one_succeeded", "one_failed"):
                # It may end before the others that it came after, and no sink waits for those.
                last.update(self.predecessors[name])
        for name in last:
            successors[name].append(end)
        rows = [self._row(self.steps[name], sorted(successors[name])) for name in self.order]
        rows.append(
            CompiledStep(
                number=end, name=END, kind=StepKind.END, task=None, queue=None, needs=None,
                priority=None, max_attempts=None, timeout=None, guarantee=None, rule=Rule.ALWAYS,
                condition=None, tolerated=0, optional=False, arguments={}, predecessors=len(last),
                successors=[],
            )
        )  # fmt: skip
        return rows

    def _kind(self, step: StepDefinition) -> StepKind:
        if step.workflow is not None:
            return StepKind.WORKFLOW
        if step.map is not None:
            return StepKind.MAP
        return StepKind.TASK if self.definition.code_version is None else StepKind.FUNCTION

    def _row(self, step: StepDefinition, successors: list[int]) -> CompiledStep:
        before = self.predecessors[step.name]
        share = round(step.tolerate * len(before), 6)  # 0.29 of 100 is 29, not 28.999999999999996
        tolerated = step.tolerate if step.tolerate >= 1 else share
        return CompiledStep(
            number=self.numbers[step.name], name=step.name,
            kind=self._kind(step),
            task=step.task or step.map or step.workflow, queue=step.queue,
            needs=_demands(step), priority=step.priority,
            max_attempts=step.max_attempts, timeout=step.timeout,
            guarantee=None if step.guarantee is None else int(Guarantee.parse(step.guarantee)),
            rule=Rule.parse(step.rule),
            condition=step.when, tolerated=int(tolerated) if step.map is None else 0,
            optional=step.optional,
            arguments=renamed(step.arguments, self.numbers), predecessors=len(before),
            successors=successors,
            map=None if step.map is None else self._map_row(step),
        )  # fmt: skip

    def _map_row(self, step: StepDefinition) -> dict[str, Any]:
        tolerate = step.tolerate
        is_share = tolerate < 1 or (tolerate == 1 and isinstance(tolerate, float))
        share = tolerate if is_share else None
        return {
            "over": renamed(step.over, self.numbers), "item": step.item, "size": step.size,
            "at_once": step.at_once or AT_ONCE, "each": step.each,
            "tolerated": int(tolerate), "share": share or None,
        }  # fmt: skip


def _demands(step: StepDefinition) -> list[str] | None:
    """Return what a step asks of a worker. The database fills in what is left to the task."""
    asked = demands(step.needs, step.resources, step.near, step.near_patience, None)
    return None if asked is None else list(asked)


def _check_place(step: StepDefinition) -> None:
    """Check what decides where its job runs."""
    if step.queue is not None:
        check_name("queue", step.queue)
    for need in step.needs or ():
        check_name("a capability in needs", need)
    if step.resources is not None:
        parse_job(step.resources)
    check_near(step.near, step.near_patience)
    if step.near_patience is not None and not step.near:
        raise ConfigError("near_patience needs near", field="near_patience")
