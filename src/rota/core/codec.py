"""Type annotations, and the JSON that stands for their values.

msgspec reads and writes most types by itself: numbers, texts, dates, UUIDs, decimals, enums,
dataclasses, attrs classes, TypedDicts, NamedTuples and its own structs. Paths, IP addresses and time
zones are written as texts. What Pydantic defines is left to Pydantic, which is imported only when an
annotation names something of it. Other classes are refused.
"""

from __future__ import annotations

import functools
import importlib.util
import typing
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import PurePath
from typing import Any

import msgspec
from msgspec import inspect as types

_PLAIN_JSON = (dict, list, str, int, float, bool, type(None))
_TEXTS = (types.StrType, types.BytesType, types.ByteArrayType, types.MemoryViewType, types.DateTimeType,
          types.TimeType, types.DateType, types.TimeDeltaType, types.UUIDType)  # fmt: skip
_SETS = (types.SetType, types.FrozenSetType)
_ARRAYS = (types.CollectionType, types.TupleType, types.NamedTupleType)
_OBJECTS = (types.DictType, types.TypedDictType, types.DataclassType)
_PYDANTIC_WRAPPERS = ("model", "dataclass", "definitions", "function-after")
_PYDANTIC_OBJECTS = ("model-fields", "dataclass-args", "typed-dict", "dict")
_MOST_VALUES = 100
# Classes whose values are texts, by module: whoever has a value has imported it.
_TEXT_CLASSES = {
    "ipaddress": {"IPv4Address", "IPv6Address", "IPv4Network", "IPv6Network", "IPv4Interface",
                  "IPv6Interface"},
    "zoneinfo": {"ZoneInfo"},
}  # fmt: skip

# What makes a plain value of a subclass's, whatever the subclass defines itself.
_EXACT: dict[type, Callable[[Any], Any]] = {
    str: str.__str__, int: int.__int__, float: float.__float__, bytes: bytes.__bytes__,
}  # fmt: skip

# The JSON types of a value; None: any.
JsonTypes = frozenset[str] | None


def unreadable(annotation: Any) -> type | None:
    """Return the first class within an annotation that no JSON can stand for."""
    return next((kind for kind in _custom(annotation) if not _is_readable(kind)), None)


def is_text_class(kind: Any) -> bool:
    """Return whether values of this class are written as ``str(value)`` and read as ``kind(text)``."""
    if not isinstance(kind, type):
        return False
    return issubclass(kind, PurePath) or kind.__name__ in _TEXT_CLASSES.get(kind.__module__, ())


@functools.cache
def _has_pydantic() -> bool:
    return importlib.util.find_spec("pydantic") is not None


def is_pydantic(annotation: Any) -> bool:
    """Return whether an annotation names a model, a type or a constraint of Pydantic's."""
    return _names_pydantic(annotation) and _has_pydantic()


def _names_pydantic(annotation: Any) -> bool:
    if hasattr(annotation, "__get_pydantic_core_schema__"):
        return True
    if "__pydantic_validator__" in getattr(annotation, "__dict__", {}):
        return True
    if typing.get_origin(annotation) is typing.Literal:
        return False
    of_pydantic = any(
        type(each).__module__.partition(".")[0] in ("pydantic", "annotated_types")
        for each in getattr(annotation, "__metadata__", ())
    )
    return of_pydantic or any(_names_pydantic(each) for each in typing.get_args(annotation))


class Adapter:
    """Reads and writes values of one annotation by Pydantic."""

    def __init__(self, annotation: Any) -> None:
        from pydantic import TypeAdapter

        self._adapter: Any = TypeAdapter(annotation)

    def read(self, body: bytes) -> Any:
        """Read a JSON value. Raises ValueError with all problems in one line."""
        try:
            return self._adapter.validate_json(body)
        except ValueError as error:
            raise ValueError(_pydantic_problems(error)) from None

    def write(self, value: Any) -> Any:
        """Return a value as JSON has it. Raises ValueError for a secret that would be masked."""
        written = self._adapter.dump_python(value, mode="json", by_alias=True, warnings=False)
        if _may_be_masked(written):
            _refuse_masked(written, self._adapter.dump_python(value, by_alias=True, warnings=False))
        return written

    def json_schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = self._adapter.json_schema(by_alias=True)
        return schema

    @property
    def json_types(self) -> JsonTypes:
        """`object` where none of the model's own code comes before Pydantic's check; otherwise any."""
        schema: Any = self._adapter.core_schema
        while schema["type"] in _PYDANTIC_WRAPPERS:
            schema = schema["schema"]
        return frozenset(["object"]) if schema["type"] in _PYDANTIC_OBJECTS else None


def _may_be_masked(written: Any) -> bool:
    return b"**" in msgspec.json.encode(written)


def _refuse_masked(written: Any, value: Any) -> None:
    """Refuse a secret of Pydantic's that was written as asterisks: the handler would get those."""
    if isinstance(written, dict) and isinstance(value, dict):
        for inner in zip(written.values(), value.values(), strict=False):
            _refuse_masked(*inner)
    elif isinstance(written, list) and isinstance(value, list | tuple | set | frozenset):
        for inner in zip(written, value, strict=False):
            _refuse_masked(*inner)
    elif hasattr(value, "get_secret_value") and written == str(value):
        raise ValueError(
            f"a {type(value).__name__} is written as {written!r}, so that the handler would not get "
            "the secret. Take a `str` and encrypt the task's payloads, or give the field a serializer "
            "that returns the secret"
        )


def _pydantic_problems(error: ValueError) -> str:
    """Return all problems in one line: `items.0.price: Input should be greater than 0; ...`."""
    listed = error.errors(include_url=False) if hasattr(error, "errors") else []
    problems = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in listed]
    return "; ".join(problem.removeprefix(": ") for problem in problems) or str(error)


def encode_hook(value: Any) -> Any:
    """Encode for msgspec what it can't write by itself.

    Texts, what Pydantic can write, and subclasses of text and numbers, such as Django's SafeString:
    msgspec takes only the classes themselves.
    """
    kind = type(value)
    if is_text_class(kind):
        return str(value)
    for base, exact in _EXACT.items():
        if isinstance(value, base) and not isinstance(value, bool):  # True as a key of a dict
            return exact(value)
    if hasattr(kind, "__get_pydantic_core_schema__"):
        from pydantic_core import to_jsonable_python

        written = to_jsonable_python(value, by_alias=True)
        return Adapter(kind).write(value) if _may_be_masked(written) else written
    raise TypeError(f"objects of type {kind.__module__}.{kind.__qualname__} have no JSON form")


def decode_hook(kind: type, value: Any) -> Any:
    """Decode for msgspec what it can't read by itself, deep within what it can."""
    if is_text_class(kind):
        if not isinstance(value, str):
            raise ValueError(f"Expected `str`, got `{type(value).__name__}`")
        return kind(value)
    return Adapter(kind).read(msgspec.json.encode(value)) if is_pydantic(kind) else value


class ResultReader:
    """Converts a stored result to the type that the function's annotation says it returned."""

    def __init__(self, annotation: Any) -> None:
        self._annotation = annotation
        self._read: Callable[[Any], Any] | None = None

    def read(self, value: Any) -> Any:
        """Convert a result. Raises ValueError or `msgspec.ValidationError` when it doesn't fit."""
        if self._read is None:
            self._read = self._reader()
        return self._read(value)

    def _reader(self) -> Callable[[Any], Any]:
        annotation = self._annotation
        if is_pydantic(annotation):
            adapter = Adapter(annotation)
            return lambda value: adapter.read(msgspec.json.encode(value))
        if annotation in (Any, None, type(None)) or unreadable(annotation) is not None:
            return lambda value: value
        # As arguments are read: JSON's keys are texts, also those of dict[int, str].
        decode = msgspec.json.Decoder(annotation, dec_hook=decode_hook).decode
        return lambda value: decode(msgspec.json.encode(value))


def json_types(annotation: Any) -> tuple[JsonTypes, list[Any] | None]:
    """Return the JSON types that an annotation accepts, and the values if it is a choice among few."""
    try:
        found = types.type_info(annotation)
    except (TypeError, NameError):
        return None, None
    return _json_types(found), _values(found)


_SIMPLE: list[tuple[tuple[type, ...], str]] = [
    ((types.NoneType,), "null"),
    ((types.BoolType,), "boolean"),
    ((types.IntType,), "integer"),
    ((types.FloatType, types.DecimalType), "number"),
    ((types.DecimalType, *_TEXTS), "string"),
    (_ARRAYS, "array"),
    (_OBJECTS, "object"),
]


def _json_types(found: types.Type) -> JsonTypes:
    if isinstance(found, types.Metadata):
        return _json_types(found.type)
    if isinstance(found, types.UnionType):
        parts = [_json_types(each) for each in found.types]
        return None if None in parts else frozenset().union(*(part or () for part in parts))
    if isinstance(found, types.StructType):
        return frozenset(["array" if found.array_like else "object"])
    if isinstance(found, types.CustomType) and is_text_class(found.cls):
        return frozenset(["string"])
    return frozenset(name for kinds, name in _SIMPLE if isinstance(found, kinds)) or None


def _values(found: types.Type) -> list[Any] | None:
    values: list[Any] = []
    match found:
        case types.Metadata():
            return _values(found.type)
        case types.EnumType():
            # A `_missing_` of its own takes more: combinations of a Flag, other spellings.
            if found.cls._missing_.__func__ is not Enum._missing_.__func__:  # type: ignore[attr-defined]
                return None
            values = [each.value for each in found.cls]
        case types.LiteralType():
            values = list(found.values)
    plain = all(isinstance(each, str | int | None) for each in values)
    return values if values and plain and len(values) <= _MOST_VALUES else None


def _is_readable(kind: type) -> bool:
    if is_text_class(kind) or is_pydantic(kind):
        return True
    try:  # object, Iterable and the like
        return any(issubclass(plain, kind) for plain in _PLAIN_JSON)
    except TypeError:
        return False


def has_sets(annotation: Any) -> bool:
    """Return whether there are sets among the values of an annotation."""
    return any(isinstance(each, _SETS) for each in _types_within(annotation))


def _custom(annotation: Any) -> Iterator[type]:
    """Iterate over the classes within an annotation that msgspec doesn't know."""
    return (each.cls for each in _types_within(annotation) if isinstance(each, types.CustomType))


def _types_within(annotation: Any) -> Iterator[types.Type]:
    """Iterate over an annotation's type and all types that it consists of."""
    try:
        pending: list[Any] = [types.type_info(annotation)]
    except (TypeError, NameError):
        return  # making the decoder raises the reason
    seen: set[int] = set()
    while pending:
        found = pending.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        pending += _parts(found)


def _parts(found: Any) -> list[Any]:
    fields = getattr(found, "fields", ())
    named = ("type", "item_type", "key_type", "value_type")
    return [
        *(each.type for each in fields),
        *(getattr(found, name) for name in named if hasattr(found, name)),
        *getattr(found, "types", ()),
        *getattr(found, "item_types", ()),
    ]
