"""Values as JSON: what is stored, and what clients send."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from rota.core.codec import encode_hook
from rota.errors import InvalidArguments

_encode = msgspec.json.Encoder(decimal_format="string", enc_hook=encode_hook).encode
_in_one_order = msgspec.json.Encoder(
    decimal_format="string", enc_hook=encode_hook, order="deterministic"
).encode
# What encoding raises for values without a JSON form.
_NO_JSON = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)
_OWNERS = {"input": "workflow", "result": "step", "content": "signal"}


def whose(name: str, what: str) -> str:
    """Return whose values are refused: those of a task, unless it is said what else they are."""
    return f"{_OWNERS.get(what, 'task')} {name!r}"


def encode_in_order(value: Any) -> bytes:
    """Encode sets in the order of their values.

    Python's own order differs from process to process, and so would the payload: a submit that is
    repeated elsewhere with its key would conflict with the first.
    """
    try:
        return _in_one_order(value)
    except TypeError:  # numbers and texts in one set have no order; or there is no JSON at all
        return _encode(value)


def _ordered(value: Any) -> Any:
    is_set = isinstance(value, set | frozenset)
    return msgspec.Raw(encode_in_order(value)) if is_set else value


def encode_values(
    values: Mapping[str, Any], task: str, what: str = "payload",
    encode: Callable[[Any], bytes] = _encode,
) -> bytes:  # fmt: skip
    """Encode values as JSON, or refuse them with an error that names the first without a form."""
    try:
        if any(isinstance(value, set | frozenset) for value in values.values()):
            return encode({name: _ordered(value) for name, value in values.items()})
        return encode(values)
    except _NO_JSON as error:
        for name, value in values.items():
            try:
                _encode(value)
            except _NO_JSON as own:
                place = "argument" if what == "payload" else f"in its {what},"
                raise InvalidArguments(
                    f"{whose(task, what)}: {place} {name!r}: {_no_json(own)}"
                ) from None
        raise InvalidArguments(f"{whose(task, what)}: {_no_json(error)}") from None


def _no_json(error: Exception) -> str:
    """Return why a value has no JSON form."""
    if isinstance(error, UnicodeEncodeError):
        return (
            f"a text holds half of a surrogate pair ({error.object[error.start]!r}), which UTF-8 can't "
            "encode. Replace it: text.encode(errors='replace').decode()"
        )
    if isinstance(error, RecursionError):
        return "it is nested too deeply, or contains itself"
    return str(error)


def check_numbers(
    encoded: bytes, values: Mapping[str, Any], task: str, what: str = "payload"
) -> None:
    """Refuse NaN and infinity, which are written as null: they must not become nothing silently."""
    if b"null" in encoded and _has_non_number(msgspec.to_builtins(values, enc_hook=encode_hook)):
        raise InvalidArguments(
            f"{whose(task, what)}: NaN and infinity have no JSON form: pass None, or a string"
        )


def plain_json(value: Any, what: str) -> Any:
    """Return a value as JSON has it: texts, numbers, lists and objects."""
    return msgspec.json.decode(encode_plain(value, what))


def encode_plain(value: Any, what: str) -> bytes:
    """Encode a value as JSON, or refuse it with an error that says what it is."""
    try:
        encoded = _encode(value)
        if b"null" in encoded and _has_non_number(msgspec.to_builtins(value, enc_hook=encode_hook)):
            raise ValueError("NaN and infinity have no JSON form: pass None, or a string")
    except _NO_JSON as error:
        raise InvalidArguments(f"{what!r}: {_no_json(error)}") from None
    return encoded


def _has_non_number(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        value = [*value, *value.values()]
    return isinstance(value, list | tuple) and any(_has_non_number(item) for item in value)
