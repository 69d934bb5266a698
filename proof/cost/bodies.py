"""Bodies that are made to be expensive."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

JSON = "application/json"
NDJSON = "application/x-ndjson"
FORM = "application/x-www-form-urlencoded"

Make = Callable[[int], bytes]


class Kind(msgspec.Struct, frozen=True):
    """A way to fill a body of any size."""

    name: str
    media_type: str
    make: Make


def _repeated(piece: bytes, before: bytes = b"", after: bytes = b"") -> Make:
    return lambda size: before + piece * (max(size - len(before + after), 0) // len(piece)) + after


# What a kilobyte costs when nothing is wrong with it.
PLAIN = Kind("plain", JSON, _repeated(b'"some words of text", ', b'{"a": [', b'"end"]}'))

_BRACKETS = b"[" * 100  # more than may be nested, so that the depth is looked at

HOSTILE = (
    Kind("escaped quotes without end", JSON, _repeated(b'\\"', b'{"a": "' + _BRACKETS)),
    Kind("quotes", JSON, _repeated(b'"', _BRACKETS)),
    Kind("opening brackets", JSON, _repeated(b"[")),
    Kind("objects in objects", JSON, _repeated(b'{"a":')),
    Kind("backslashes", JSON, _repeated(b"\\", b'{"a": "' + _BRACKETS)),
    Kind("text about NUL", JSON, _repeated(b"\\\\u0000", b'{"a": "', b'"}')),
    Kind("NUL, escaped", JSON, _repeated(b"\\\\", b'{"a": "', b'\\u0000"}')),
    Kind("NUL", JSON, _repeated(b"a", b'{"a": "', b'\0"}')),
    Kind("surrogate pairs", JSON, _repeated(b"\\ud83d\\ude00", b'{"a": "', b'"}')),
    Kind("half a surrogate pair", JSON, _repeated(b"\\ud83d\\ude00", b'{"a": "', b'\\ud83d"}')),
    Kind("not UTF-8", JSON, _repeated(b"\xc3\xa4", b'{"a": "', b'\xff"}')),
    Kind("a long number", JSON, _repeated(b"9", b'{"a": ', b"}")),
    Kind("a long fraction", JSON, _repeated(b"9", b'{"a": 0.', b"e9}")),
    Kind("many numbers", JSON, _repeated(b"1,", b'{"a": [', b"1]}")),
    Kind("many lists", JSON, _repeated(b"[],", b'{"a": [', b"[]]}")),
    Kind("many objects", JSON, _repeated(b"{},", b"[", b"{}]")),
    Kind("many unknown fields", JSON, _repeated(b'"b": 1, ', b"{", b'"c": 1}')),
    Kind("spaces", JSON, _repeated(b" ", b"{", b"}")),
    Kind("empty lines", NDJSON, _repeated(b"\n")),
    Kind("lines that are no job", NDJSON, _repeated(b"{}\n")),
    Kind("lines that are jobs", NDJSON, _repeated(b'{"task": "work", "guarantee": "x"}\n')),
    Kind("form fields", FORM, _repeated(b"a=1&")),
    Kind("one form field", FORM, _repeated(b"%41", b"name=")),
    Kind("broken escapes of a form", FORM, _repeated(b"%f", b"name=")),
    Kind("a form that is JSON", FORM, _repeated(b"[")),
    Kind("multipart", "multipart/form-data; boundary=x", _repeated(b"--x\r\n\r\n")),
    Kind("text", "text/plain", _repeated(b"a ")),
    Kind("no such type", "x/" + "y" * 200, _repeated(b"\x80")),
)

# A few that stand for the rest, where time is short.
FEW = tuple(
    kind for kind in HOSTILE
    if kind.name in ("escaped quotes without end", "opening brackets", "a long number", "many objects",
                     "half a surrogate pair", "lines that are no job", "form fields")
)  # fmt: skip


# -- of a route's own schema


_SIMPLE: dict[str, Any] = {"string": "1", "integer": 1, "number": 1, "boolean": True, "null": None}


def of_schema(schema: dict[str, Any], components: dict[str, Any]) -> Iterator[Kind]:
    """Bodies that a route would read, with one of their fields blown up."""
    resolved = _resolved(schema, components)
    fields = resolved.get("properties", {})
    needed = {name: _least(fields[name], components) for name in resolved.get("required", ())
              if name in fields}  # fmt: skip
    for name, field in fields.items():
        for shape, blown in _blown_up(field, components):
            yield Kind(f"{name}: {shape}", JSON, _with_field(needed, name, blown))


def _with_field(needed: dict[str, Any], name: str, blown: Callable[[int], Any]) -> Make:
    return lambda size: json.dumps({**needed, name: blown(size)}).encode()[: size + 1_000]


def _resolved(schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = components[schema["$ref"].rpartition("/")[2]]
    return schema


def _choices(schema: dict[str, Any], components: dict[str, Any]) -> Iterator[dict[str, Any]]:
    schema = _resolved(schema, components)
    several = schema.get("oneOf") or schema.get("anyOf")
    for one in several or [schema]:
        if several:
            yield from _choices(one, components)
        else:
            yield one


def _least(schema: dict[str, Any], components: dict[str, Any]) -> Any:
    """Something that fits, more or less."""
    one = next(_choices(schema, components))
    if one.get("enum"):
        return one["enum"][0]
    kind = one.get("type", "object")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "array":
        return []
    if kind == "object":
        fields = one.get("properties", {})
        return {name: _least(fields[name], components) for name in one.get("required", ())}
    return _SIMPLE.get(kind, 1)


def _blown_up(
    schema: dict[str, Any], components: dict[str, Any], depth: int = 0
) -> Iterator[tuple[str, Callable[[int], Any]]]:
    for one in _choices(schema, components):
        kinds = one.get("type", "object")
        for kind in kinds if isinstance(kinds, list) else [kinds]:
            if kind == "string":
                yield "long text", lambda size: "1," * (size // 2)
                yield "long digits", lambda size: "9" * size
                yield "long word", lambda size: "*/" + "a" * size
            elif kind in ("integer", "number"):
                yield "huge", lambda _: 10**300
                yield "huge float", lambda _: 1e300
            elif kind == "array":
                item = _least(one.get("items", {}), components)
                yield "many", lambda size, item=item: [item] * (size // (len(str(item)) + 4))
            elif kind == "object" and depth < 1:
                yield from _blown_up_object(one, components, depth)


def _blown_up_object(
    schema: dict[str, Any], components: dict[str, Any], depth: int
) -> Iterator[tuple[str, Callable[[int], Any]]]:
    yield "many fields", lambda size: {f"f{number}": 1 for number in range(size // 10)}
    least = _least(schema, components)
    for name, field in schema.get("properties", {}).items():
        for shape, blown in _blown_up(field, components, depth + 1):
            yield f"{name}: {shape}", lambda size, n=name, b=blown: {**least, n: b(size)}
