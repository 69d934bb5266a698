"""Signatures of tasks in terms of JSON, by which payloads are checked where the code is missing.

A signature says less than the function does: names, what is required, the JSON types, and the values of
an enum or a Literal. What passes may still be refused by the function; what is refused, the function
would refuse as well.
The same check in SQL is rota.argument_problem(); a test holds the two together. The schema beside it
says more, and is looked at in Python alone: see `rota.core.schema`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from rota.core.schema import schema_problem

VERSION = "$version"  # in payloads of tasks that have versions
_JSON_TYPES = {
    type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string",
    dict: "object",
}  # fmt: skip


class Argument(msgspec.Struct, frozen=True, omit_defaults=True):
    """One parameter. `types`: names of JSON types; None: any. `values`: the only ones; None: any."""

    required: bool = False
    types: Sequence[str] | None = None
    values: Sequence[Any] | None = None


class Signature(msgspec.Struct, frozen=True, omit_defaults=True):
    """All parameters by name. `open`: others are taken as well.

    `schema` and `returns` are JSON Schemas of the arguments and of the result; None: nothing is known.
    """

    arguments: Mapping[str, Argument] = {}
    open: bool = False
    schema: dict[str, Any] | None = None
    returns: dict[str, Any] | None = None
    version: int = 1  # of the payload: see `App.task`
    description: str = ""

    def problem(self, task: str, payload: Mapping[str, Any]) -> str | None:
        """Return what is wrong with the arguments, or None. Names the task and the argument."""
        for name, value in payload.items():
            argument = self.arguments.get(name)
            if argument is None:
                if not self.open:
                    return unknown(task, name, self.arguments)
            elif wrong := _wrong_value(argument, value):
                return f"task {task!r}: argument {name!r}: {wrong}"
        for name, argument in self.arguments.items():
            if argument.required and name not in payload:
                return missing(task, name)
        return None

    def inner_problem(self, task: str, payload: Mapping[str, Any]) -> str | None:
        """Return what is wrong deeper inside the arguments, by the schema."""
        if self.schema is None or (found := schema_problem(self.schema, payload)) is None:
            return None
        return f"task {task!r}: argument {found[0]!r}: {found[1]}"


def release_of(signatures: Mapping[str, str]) -> str:
    """Return a name for these signatures (JSON, by task): workers of one release have the same."""
    return hashlib.sha256(msgspec.json.encode(signatures, order="sorted")).hexdigest()[:32]


def problem_with(
    signatures: Sequence[Signature], task: str, payload: Mapping[str, Any], *, inside: bool = False
) -> str | None:
    """Return the objection of the first signature, if none of them accepts the arguments.

    `inside`: look deeper into them, by the schemas.
    """
    problems = [
        signature.problem(task, payload)
        or (signature.inner_problem(task, payload) if inside else None)
        for signature in signatures
    ]
    return problems[0] if problems and None not in problems else None


def missing(task: str, name: str) -> str:
    return f"task {task!r}: argument {name!r} is missing"


def unknown(task: str, name: str, known: Iterable[str]) -> str:
    return f"task {task!r} takes no argument {name!r}; it takes: {', '.join(known) or 'none'}"


def _wrong_value(argument: Argument, value: Any) -> str | None:
    kind = _JSON_TYPES.get(type(value), "array")
    allowed = argument.types
    if allowed is not None and not {kind, "number" if kind == "integer" else kind} & {*allowed}:
        return f"expected {' or '.join(allowed)}, got {kind}"
    if argument.values is not None and value not in argument.values:
        return f"expected one of {', '.join(str(each) for each in argument.values)}"
    return None
