"""Workflows in YAML.

    workflow: orders
    deadline: 2h
    steps:
      extract: {task: extract, arguments: {day: {$input: day}}}
      load: {task: load, arguments: {rows: {$step: extract}}}
      parts: {map: send, over: load, size: 1000, tolerate: 1%}
      publish: {task: publish, arguments: {loaded: {$step: load}}, when: extract.count > 0}
      cleanup: {task: cleanup, after: publish, rule: always}

A file holds one workflow, or several by their names under `workflows`. Arguments refer to the input and
to other steps as they do in stored definitions (`rota.core.workflow.references`). All errors of all
files are reported at once, each with its line and field, and a file with an error is not used at all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, get_args

import msgspec
import yaml

from rota.core.time.interval import duration_text
from rota.core.workflow.graph import Graph
from rota.core.workflow.model import Definition, EachName, RuleName, StepDefinition
from rota.core.workflow.references import INPUT, RESULTS, STEP, VALUE
from rota.errors import ConfigError
from rota.files.yaml_nodes import Place, Problems, QuotingDumper, Source, Value, read_document
from rota.files.yaml_values import boolean, converted, duration, names, once, option, shown
from rota.model import GuaranteeName
from rota.workflow import share_of

_STEP_OPTIONS = (
    "queue", "needs", "priority", "max_attempts", "timeout", "resources", "near", "near_patience",
)  # fmt: skip
_REFERENCES: dict[str, tuple[str, ...]] = {
    STEP: (STEP, "path"), RESULTS: (RESULTS, "path"), INPUT: (INPUT, "path", "optional"),
    VALUE: (VALUE,),
}  # fmt: skip


class WantedWorkflows(msgspec.Struct, frozen=True):
    """The workflows of a set of files, with their positions and those of their steps."""

    graphs: dict[str, Graph]
    places: dict[str, Place]
    steps: dict[tuple[str, str], Place]


def read_workflows(sources: Iterable[Source]) -> WantedWorkflows:
    """Read files. A `ConfigError` has a line for each error in any of them."""
    problems = Problems()
    found: list[tuple[Source, str, Value]] = []
    for source in sources:
        root = read_document(source, problems)
        found += [(source, *each) for each in _workflows(root)] if root is not None else []
    wanted = WantedWorkflows({}, {}, {})
    for _, name, value in once(found):
        reader = _Reader(name, value)
        wanted.places[name] = (value.key or value).place
        graph = reader.read()
        wanted.steps.update({(name, step): place for step, place in reader.places.items()})
        if graph is not None:
            wanted.graphs[name] = graph
    problems.raise_if_any()
    return wanted


def _workflows(root: Value) -> Iterable[tuple[str, Value]]:
    """Return the workflows of a file by name: the one that it is, or several."""
    entries = root.entries(("workflow", "workflows", *FIELDS))
    if "workflow" in entries:
        if "workflows" in entries:
            entries["workflows"].report("a file has either `workflow` or `workflows`")
        name = converted(entries["workflow"], Value.text)
        return [(name, root)] if name is not None else []
    if "workflows" not in entries:
        if entries:
            root.report("has no name: begin the file with `workflow: NAME`")
        return []
    return entries["workflows"].entries().items()


# -- values


def _choice(*allowed: str) -> Callable[[Value], str | None]:
    def read(value: Value) -> str | None:
        text = value.text()
        if text is not None and text not in allowed:
            raise ConfigError(f"{text!r} is none of {', '.join(allowed)}")
        return text

    return read


def _number(value: Value) -> float:
    found = value.data()
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise ConfigError(f"must be a number, not {shown(found)}")
    return found


def _arguments(value: Value) -> dict[str, Any] | None:
    if not value.is_mapping:
        raise ConfigError("must be a mapping of argument names and values")
    _check_references(value)
    found: dict[str, Any] = value.data()
    return found


def _check_references(value: Value) -> None:
    """Report objects that look like references and are none."""
    entries = value.entries() if value.is_mapping else {}
    kinds = [name for name in entries if name.startswith("$")]
    if kinds:
        _check_reference(value, entries, kinds)
        return
    for each in value.items() if value.is_sequence else entries.values():
        _check_references(each)


def _check_reference(value: Value, entries: Mapping[str, Value], kinds: list[str]) -> None:
    kind = next((name for name in kinds if name in _REFERENCES), None)
    if kind is None:
        value.entries(tuple(_REFERENCES))  # reports what is unknown
        return
    if extra := [name for name in entries if name not in _REFERENCES[kind]]:
        (entries[extra[0]].key or entries[extra[0]]).report(
            f"a reference has only {', '.join(_REFERENCES[kind])}; write {{{VALUE}: {{...}}}} for an "
            "object of your own"
        )
    if kind == VALUE:
        inner = entries[VALUE]
        for each in inner.entries().values() if inner.is_mapping else ():
            _check_references(each)
        return
    entries[kind].text()
    if "path" in entries and not _is_path(entries["path"].data()):
        entries["path"].report("must be a list of keys and positions: [rows, 0]")
    if "optional" in entries:
        converted(entries["optional"], boolean)


def _is_path(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(key, str | int) and not isinstance(key, bool) for key in value
    )


def _over(value: Value) -> Any:
    """Read what a map is over: a list, a reference, or the name of a step."""
    if value.is_mapping or value.is_sequence:
        _check_references(value)
        return value.data()
    name = value.text()
    return None if name is None else {STEP: name}


def _tolerate(value: Value) -> int | float:
    found = value.data()
    if isinstance(found, str) and found.endswith("%"):
        return share_of(found, "a share of them")
    return _number(value)


def _whole(value: Value) -> int:
    found = value.data()
    if isinstance(found, bool) or not isinstance(found, int):
        raise ConfigError(f"must be a whole number, not {shown(found)}")
    return found


_STEP_READERS: dict[str, Callable[[Value], Any]] = {
    "task": Value.text, "workflow": Value.text, "arguments": _arguments, "after": names,
    "rule": _choice(*get_args(RuleName)), "when": Value.text, "tolerate": _tolerate,
    "optional": boolean, "guarantee": _choice(*get_args(GuaranteeName)),
    "map": Value.text, "over": _over, "item": Value.text, "size": _whole, "at_once": _whole,
    "each": _choice(*get_args(EachName)),
}  # fmt: skip
STEP_FIELDS = (*_STEP_READERS, *_STEP_OPTIONS)
_READERS: dict[str, Callable[[Value], Any]] = {
    "description": Value.text, "deadline": duration, "retention": duration, "result": Value.text,
}  # fmt: skip
FIELDS = (*_READERS, "steps")


class _Reader:
    """Reads one workflow of a file."""

    def __init__(self, name: str, value: Value) -> None:
        self._name = name
        self._whole = value.key or value
        in_file = FIELDS if value.key is not None else ("workflow", "workflows", *FIELDS)
        self._fields = value.entries(in_file)
        self._steps: dict[str, Value] = {}
        self.places: dict[str, Place] = {}

    def read(self) -> Graph | None:
        given = {
            name: converted(value, _READERS[name])
            for name, value in self._fields.items()
            if name in _READERS and not value.is_null
        }
        if "steps" not in self._fields:
            self._whole.report("steps is missing: a mapping of steps by their names")
            return None
        self._steps = self._fields["steps"].entries()
        self.places = {name: (step.key or step).place for name, step in self._steps.items()}
        steps = [self._step(name, value) for name, value in self._steps.items()]
        known = {name: value for name, value in given.items() if value is not None}
        return self._graph(Definition(name=self._name, steps=steps, **known))

    def _step(self, name: str, value: Value) -> StepDefinition:
        entries = value.entries(STEP_FIELDS)
        given: dict[str, Any] = {}
        for field, inner in entries.items():
            if field in _STEP_OPTIONS and not inner.is_null:
                given[field] = option(inner, field)
            elif field in _STEP_READERS and not inner.is_null:
                given[field] = converted(inner, _STEP_READERS[field])
        known = {field: each for field, each in given.items() if each is not None}
        for field in ("task", "workflow", "map"):  # one that is wrong is reported once
            if field in entries and field not in known:
                known[field] = "wrong"
        return StepDefinition(name=name, **known)

    def _graph(self, definition: Definition) -> Graph | None:
        """Check the graph. One wrong field after the other is left out, so that each is reported."""
        while True:
            try:
                graph = Graph(definition)
            except ConfigError as error:
                without = self._report(definition, error)
                if without is None:
                    return None
                definition = without
            else:
                self._warn_of_needs(definition)
                return graph

    def _report(self, definition: Definition, error: ConfigError) -> Definition | None:
        """Report an error where it is, and return the definition without what is wrong."""
        step, field = error.subject, next(iter(error.fields), None)
        where = f"workflow {self._name!r}" + (f", step {step!r}" if step is not None else "")
        message = str(error).removeprefix(f"{where}: ")
        if step is None:
            place = self._fields.get(field or "", self._whole)
            place.report(message)
            return msgspec.structs.replace(definition, result=None) if field == "result" else None
        whole = self._steps[step].key or self._steps[step]
        entries = self._steps[step].entries()
        entries.get(field or "", whole).report(message)
        defaults: dict[str | None, Any] = {
            "after": (), "arguments": {}, "when": None, "rule": "all_succeeded", "tolerate": 0,
            "task": "wrong", "map": "wrong", "over": [], "item": None, "size": None,
            "at_once": None, "each": "chunk",
        }  # fmt: skip
        if field not in defaults:
            return None
        correct = {str(field): defaults[field]}
        steps = [
            msgspec.structs.replace(each, **correct) if each.name == step else each
            for each in definition.steps
        ]
        return msgspec.structs.replace(definition, steps=steps)

    def _warn_of_needs(self, definition: Definition) -> None:
        """Steps that come first are named by `after`; in other systems by `needs`."""
        known = {step.name for step in definition.steps}
        for step in definition.steps:
            if wrong := sorted(known & {*(step.needs or ())}):
                self._steps[step.name].entries()["needs"].report(
                    f"{wrong[0]!r} is a step, and needs lists capabilities of workers: write "
                    f"after: [{wrong[0]}]"
                )


# -- writing


def fields_of(definition: Definition) -> dict[str, Any]:
    """Return a workflow as written in a file, without its name and without defaults."""
    written: dict[str, Any] = {
        name: duration_text(value) if name in ("deadline", "retention") else value
        for name in _READERS
        if (value := getattr(definition, name))
    }
    written["steps"] = {step.name: _step_fields(step) for step in definition.steps}
    return written


def _step_fields(step: StepDefinition) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(step)  # without defaults
    del fields["name"]
    if not step.after:
        fields.pop("after", None)
    if isinstance(over := fields.get("over"), dict) and list(over) == [STEP]:
        fields["over"] = over[STEP]
    if "timeout" in fields:
        fields["timeout"] = duration_text(fields["timeout"])
    return {name: fields[name] for name in STEP_FIELDS if name in fields}


def write_workflows(definitions: Collection[Definition]) -> str:
    """Return workflows as a file that reads as the same."""
    documents: Mapping[str, Any]
    if len(definitions) == 1:
        [only] = definitions
        documents = {"workflow": only.name, **fields_of(only)}
    else:
        documents = {"workflows": {each.name: fields_of(each) for each in definitions}}
    text: str = yaml.dump(
        documents, Dumper=QuotingDumper, sort_keys=False, allow_unicode=True, width=100,
        default_flow_style=None,
    )  # fmt: skip
    return text
