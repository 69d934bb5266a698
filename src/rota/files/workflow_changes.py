"""The difference between stored and wanted workflows, to be shown and then applied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from rota.app import App
from rota.core.signature import Signature, problem_with
from rota.core.workflow.graph import Graph
from rota.core.workflow.model import Definition, StepDefinition
from rota.core.workflow.references import find_references
from rota.errors import ConfigError, InvalidArguments
from rota.files.changes import Change, FieldChange, compare
from rota.files.yaml_workflows import WantedWorkflows, fields_of
from rota.model import WorkflowInfo
from rota.store.signatures import unknown_task

SOURCE = "file"


def difference(
    present: Iterable[WorkflowInfo], wanted: Mapping[str, Graph], *, prune: bool = False
) -> list[Change]:
    """Return the changes from the stored to the wanted workflows.

    With `prune`, the other workflows that came from files are retired.
    """
    known = {info.name: info for info in present}
    changes: list[Change] = []
    for name, graph in wanted.items():
        old = None
        if name in known:
            old = _flat(fields_of(_definition(known[name])))
            if known[name].retired_at is not None:
                old["retired"] = True
        changes.append(
            _by_fields(compare("workflow", name, old, _flat(fields_of(graph.definition))))
        )
    for name, info in known.items():
        if prune and info.source == SOURCE and info.retired_at is None and name not in wanted:
            changes.append(Change("workflow", "retire", name))
    return changes


def _definition(info: WorkflowInfo) -> Definition:
    return msgspec.convert(info.definition, Definition)


def _flat(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with each step as one of them."""
    steps = {f"steps.{name}": step for name, step in fields.pop("steps").items()}
    return {**fields, **steps}


def _by_fields(change: Change) -> Change:
    """Return the change with the fields of changed steps one by one."""
    fields: list[FieldChange] = []
    for each in change.fields:
        if not isinstance(each.old, dict) or not isinstance(each.new, dict):
            fields.append(each)
            continue
        fields += [
            FieldChange(f"{each.field}.{name}", each.old.get(name), each.new.get(name))
            for name in dict.fromkeys((*each.old, *each.new))
            if each.old.get(name) != each.new.get(name)
        ]
    return msgspec.structs.replace(change, fields=fields)


async def apply(app: App, changes: Iterable[Change], wanted: Mapping[str, Graph]) -> None:
    """Apply changes, in one transaction."""
    needed = [change for change in changes if change.action != "unchanged"]
    await app.workflows.put_all(
        [wanted[each.name] for each in needed if each.action != "retire"],
        retire=[each.name for each in needed if each.action == "retire"], source=SOURCE,
    )  # fmt: skip


# -- what can't be seen in the files alone


def check_owners(present: Iterable[WorkflowInfo], wanted: WantedWorkflows) -> None:
    """Refuse workflows that code declares: the next node that starts would restore them."""
    declared = [
        f"{wanted.places[info.name]}: workflow {info.name}: is declared in code; change it there, or "
        "give this one another name"
        for info in present
        if info.name in wanted.graphs and info.source == "code" and info.retired_at is None
    ]
    if declared:
        raise ConfigError("\n".join(sorted(declared)))


def check_inner(present: Iterable[WorkflowInfo], wanted: WantedWorkflows) -> None:
    """Refuse steps that are workflows which don't exist, or contain themselves."""
    inner = {info.name: _inner(_definition(info)) for info in present}
    inner |= {name: _inner(graph.definition) for name, graph in wanted.graphs.items()}
    problems: list[str] = []
    for name, graph in wanted.graphs.items():
        for step in graph.definition.steps:
            if step.workflow is None:
                continue
            where = f"{wanted.steps[name, step.name]}: workflow {name}, step {step.name}"
            if step.workflow not in inner:
                problems.append(
                    f"{where}: no workflow is named {step.workflow!r}, here or in the database"
                )
            elif (cycle := _way(inner, step.workflow, name)) is not None:
                problems.append(
                    f"{where}: the workflow is a step of itself: {' -> '.join([name, *cycle])}"
                )
    if problems:
        raise ConfigError("\n".join(problems))


def _inner(definition: Definition) -> list[str]:
    return [step.workflow for step in definition.steps if step.workflow is not None]


def _way(inner: Mapping[str, list[str]], first: str, last: str) -> list[str] | None:
    """Return a way from one workflow to another along their steps."""
    ways = {first: [first]}
    ahead = [first]
    while ahead:
        name = ahead.pop()
        if name == last:
            return ways[name]
        for each in inner.get(name, ()):
            if each not in ways:
                ways[each] = [*ways[name], each]
                ahead.append(each)
    return None


async def check_tasks(app: App, wanted: WantedWorkflows) -> list[str]:
    """Refuse arguments that a task doesn't take; return warnings about tasks that nobody knows."""
    signatures = await app.rota.signatures()
    problems: list[str] = []
    warnings: dict[str, None] = {}
    for name, graph in wanted.graphs.items():
        for step in graph.definition.steps:
            if step.task is None or step.task.startswith("rota."):
                continue
            known = await signatures.of(app.rota.namespace, step.task)
            if known is None:
                warnings[unknown_task(step.task)] = None
            elif problem := _problem(known, step):
                place = wanted.steps[name, step.name]
                problems.append(f"{place}: workflow {name}, step {step.name}: {problem}")
    if problems:
        raise InvalidArguments("\n".join(problems))
    return list(warnings)


def _problem(signatures: list[Signature], step: StepDefinition) -> str | None:
    """Return what is wrong with the arguments of a step. What is referred to may be of any type."""
    referring = {name for name, value in step.arguments.items() if any(find_references(value))}
    loose = [
        msgspec.structs.replace(
            signature,
            arguments={
                name: msgspec.structs.replace(argument, types=None, values=None)
                if name in referring
                else argument
                for name, argument in signature.arguments.items()
            },
        )
        for signature in signatures
    ]
    return problem_with(loose, step.task or "", step.arguments)
