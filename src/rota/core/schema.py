"""JSON Schemas of what tasks take and return, and the check of payloads by them.

Nodes register the schema of each task beside its signature (`rota.core.signature`): people and
programs read it, and a server without the task's code checks payloads by it, down to the field. As for
signatures, what the check refuses the function would refuse as well, and not the other way round: it
knows the keywords that msgspec writes, and passes over all others. What Pydantic reads it passes over as
a whole, since Pydantic also takes what its own schemas don't allow: the text "7" for an integer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from rota.core.codec import Adapter, is_pydantic, is_text_class

Schema = dict[str, Any]

UNCHECKED = "x-rota-unchecked"
_REF = "#/$defs/"
_MOST_BYTES = 65_536  # a larger one is not registered
_NAMES: dict[type, str] = {
    type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string",
    list: "array", dict: "object",
}  # fmt: skip
_BOUNDS: list[tuple[str, Callable[[Any, Any], bool], str]] = [
    ("minimum", lambda value, bound: value >= bound, "at least"),
    ("exclusiveMinimum", lambda value, bound: value > bound, "more than"),
    ("maximum", lambda value, bound: value <= bound, "at most"),
    ("exclusiveMaximum", lambda value, bound: value < bound, "less than"),
]
_LENGTHS: dict[type, tuple[str, str, str]] = {
    str: ("minLength", "maxLength", "characters"),
    list: ("minItems", "maxItems", "items"),
    dict: ("minProperties", "maxProperties", "fields"),
}


# -- writing


class SchemaWriter:
    """Writes the schemas of several annotations, which share their definitions."""

    def __init__(self) -> None:
        self._definitions: Schema = {}

    def of(self, annotation: Any) -> Schema:
        """Return the schema of an annotation; an empty one, which takes anything, if it has none."""
        if is_pydantic(annotation):
            return self._of_pydantic(annotation)
        try:
            [schema], definitions = msgspec.json.schema_components(
                [annotation], schema_hook=self._of_class, ref_template=_REF + "{name}"
            )
        except Exception:  # noqa: BLE001 - user types may raise anything
            return {}
        self._define(definitions)
        return dict(schema)

    def _define(self, definitions: Schema) -> None:
        """Add definitions. Two classes of one name can't be told apart: what is of either passes."""
        for name, own in definitions.items():
            known = self._definitions.setdefault(name, own)
            if known != own:
                self._definitions[name] = {UNCHECKED: True, "title": name}

    def _of_class(self, kind: type) -> Schema:
        if is_text_class(kind):
            return {"type": "string", "format": kind.__name__.lower()}
        return self._of_pydantic(kind) if is_pydantic(kind) else {}

    def _of_pydantic(self, annotation: Any) -> Schema:
        try:
            schema = Adapter(annotation).json_schema()
        except Exception:  # noqa: BLE001 - user types may raise anything
            return {UNCHECKED: True}
        self._define(schema.pop("$defs", {}))
        return {**schema, UNCHECKED: True}

    def finished(self, schema: Schema) -> Schema | None:
        """Return a schema with all definitions; None if that is too large to be registered."""
        if self._definitions:
            schema["$defs"] = self._definitions
        try:
            encoded = msgspec.json.encode(schema)
        except (TypeError, ValueError, msgspec.MsgspecError):  # a default that isn't JSON
            return None
        if len(encoded) > _MOST_BYTES or b"\\u0000" in encoded:  # PostgreSQL takes no NUL
            return None
        finished: Schema = msgspec.json.decode(encoded)
        return finished


def schema_of(annotation: Any) -> Schema | None:
    """Return the schema of one annotation; None if it says nothing."""
    writer = SchemaWriter()
    return writer.finished(writer.of(annotation)) or None


# -- checking


def schema_problem(schema: Schema, payload: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the name of the first argument that doesn't fit, and what is wrong with it."""
    definitions = schema.get("$defs", {})
    for name, own in schema.get("properties", {}).items():
        if name in payload and (
            found := next(_problems(own, payload[name], definitions, ""), None)
        ):
            return name, found
    return None


def _problems(schema: Any, value: Any, definitions: Schema, place: str) -> Iterator[str]:
    """Yield what is wrong with a value, each with its place. Lazily: most callers ask for the first."""
    if not isinstance(schema, dict) or schema.get(UNCHECKED):
        return
    if reference := schema.get("$ref"):
        schema = definitions.get(str(reference).removeprefix(_REF), {})
        yield from _problems(schema, value, definitions, place)
        return
    if choices := schema.get("anyOf"):
        yield from _no_choice(choices, value, definitions, place)
        return
    if wrong := _wrong_type(schema, value) or _wrong_value(schema, value):
        yield wrong + (f" (at {place})" if place else "")
    elif isinstance(value, dict):
        yield from _problems_of_fields(schema, value, definitions, place)
    elif isinstance(value, list):
        yield from _problems_of_items(schema, value, definitions, place)


def _no_choice(choices: list[Any], value: Any, definitions: Schema, place: str) -> Iterator[str]:
    found = [next(_problems(each, value, definitions, place), None) for each in choices]
    if None in found:
        return
    # Of several alternatives the one that is nearest: whose type fits, and something inside doesn't.
    deepest = max(found, key=lambda words: (words or "").count(" (at "))
    yield deepest or ""


def _problems_of_fields(
    schema: Schema, value: Mapping[str, Any], definitions: Schema, place: str
) -> Iterator[str]:
    own, rest = schema.get("properties", {}), schema.get("additionalProperties")
    where = f" (at {place})" if place else ""
    for name in schema.get("required", ()):
        if name not in value:
            yield f"field {name!r} is missing{where}"
    for name, each in value.items():
        inner = f"{place}.{name}" if place else str(name)
        if name in own:
            yield from _problems(own[name], each, definitions, inner)
        elif rest is False:
            yield f"unknown field {name!r}{where}"
        else:
            yield from _problems(rest, each, definitions, inner)


def _problems_of_items(
    schema: Schema, value: list[Any], definitions: Schema, place: str
) -> Iterator[str]:
    first, rest = schema.get("prefixItems", ()), schema.get("items")
    for number, each in enumerate(value):
        own = first[number] if number < len(first) else rest
        yield from _problems(own, each, definitions, f"{place}[{number}]")


def _wrong_type(schema: Schema, value: Any) -> str | None:
    expected = schema.get("type")
    if expected is None:
        return None
    allowed = {expected} if isinstance(expected, str) else set(expected)
    if "number" in allowed or schema.get("format") == "decimal":
        allowed |= {"integer", "number"}
    kind = _NAMES.get(type(value), "")
    return None if kind in allowed else f"expected {expected}, got {kind}"


def _wrong_value(schema: Schema, value: Any) -> str | None:
    # An Enum has a title, a Literal has none: an Enum may take more than its values (`_missing_`).
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    if choices is not None and "title" not in schema and value not in choices:
        return f"expected one of {', '.join(map(str, choices))}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        for keyword, holds, words in _BOUNDS:
            if (bound := schema.get(keyword)) is not None and not holds(value, bound):
                return f"expected {words} {bound}, got {value}"
    if lengths := _LENGTHS.get(type(value)):
        least, most, what = lengths
        if len(value) < schema.get(least, 0):
            return f"expected at least {schema[least]} {what}, got {len(value)}"
        if len(value) > schema.get(most, len(value)):
            return f"expected at most {schema[most]} {what}, got {len(value)}"
    return None
