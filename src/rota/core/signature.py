"""A task's signature as JSON can say it, and payloads checked against it by those who lack the code.

It says less than the function does: names, what is required, the JSON types, and the values of an enum
or a Literal. What passes may still be refused by the function; what is refused, the function would
refuse as well.
The same check in SQL is rota.argument_problem(); a test holds the two together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec


class Argument(msgspec.Struct, frozen=True, omit_defaults=True):
    """One parameter. `types`: names of JSON types; None: any. `values`: the only ones; None: any."""

    required: bool = False
    types: Sequence[str] | None = None
    values: Sequence[Any] | None = None


class Signature(msgspec.Struct, frozen=True, omit_defaults=True):
    """All parameters by name. `open`: others are taken as well."""

    arguments: Mapping[str, Argument] = {}
    open: bool = False

    def problem(self, task: str, payload: Mapping[str, Any]) -> str | None:
        """What is wrong with the arguments, with the task's and the argument's name; None: nothing."""
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


def release_of(signatures: Mapping[str, str]) -> str:
    """A name for these signatures (JSON, by task): workers of one release have the same."""
    return hashlib.sha256(msgspec.json.encode(signatures, order="sorted")).hexdigest()[:32]


def problem_with(
    signatures: Sequence[Signature], task: str, payload: Mapping[str, Any]
) -> str | None:
    """What the first one objects to, if none of them accepts the arguments."""
    problems = [signature.problem(task, payload) for signature in signatures]
    return problems[0] if problems and None not in problems else None


def missing(task: str, name: str) -> str:
    return f"task {task!r}: argument {name!r} is missing"


def unknown(task: str, name: str, known: Iterable[str]) -> str:
    return f"task {task!r} takes no argument {name!r}; it takes: {', '.join(known) or 'none'}"


def _wrong_value(argument: Argument, value: Any) -> str | None:
    kind = _json_type(value)
    if argument.types is not None and not _fits(kind, argument.types):
        return f"expected {' or '.join(argument.types)}, got {kind}"
    if argument.values is not None and value not in argument.values:
        return f"expected one of {', '.join(str(each) for each in argument.values)}"
    return None


def _fits(kind: str, allowed: Sequence[str]) -> bool:
    return kind in allowed or (kind == "integer" and "number" in allowed)


def _json_type(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case dict():
            return "object"
        case _:
            return "array"
