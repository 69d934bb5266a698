"""Payloads: values as JSON, and the limits of what is stored."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Any

import msgspec

from rota.core.codec import encode_hook
from rota.errors import InvalidArguments, PayloadTooLarge
from rota.lib.encryption import ENVELOPE_BYTES

_encode = msgspec.json.Encoder(decimal_format="string", enc_hook=encode_hook).encode
_in_one_order = msgspec.json.Encoder(
    decimal_format="string", enc_hook=encode_hook, order="deterministic"
).encode
# What encoding raises for values without a JSON form.
_NO_JSON = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)
# A string, or what is left of one that doesn't end: each byte is looked at once, whatever comes. With
# the closing quote required, a body of escaped quotes would be scanned again from each of them.
_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
# An odd number of backslashes before u0000 makes it an escape; an even one is text about it.
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*+\\u0000")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = [0] * 256
for _opening in b"[{":
    _STEPS[_opening] = 1
for _closing in b"]}":
    _STEPS[_closing] = -1


class Limits(msgspec.Struct, frozen=True):
    payload_bytes: int
    payload_depth: int


_OWNERS = {"input": "workflow", "result": "step", "content": "signal"}


def _whose(name: str, what: str) -> str:
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
                    f"{_whose(task, what)}: {place} {name!r}: {_no_json(own)}"
                ) from None
        raise InvalidArguments(f"{_whose(task, what)}: {_no_json(error)}") from None


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


def encode_payload(
    values: Mapping[str, Any], limits: Limits, task: str, what: str = "payload"
) -> bytes:
    """Encode values as JSON, or refuse them with an error that names the task."""
    payload = encode_values(values, task, what)
    check_payload(payload, limits, task, what)
    check_numbers(payload, values, task, what)
    return payload


def check_numbers(
    encoded: bytes, values: Mapping[str, Any], task: str, what: str = "payload"
) -> None:
    """Refuse NaN and infinity, which are written as null: they must not become nothing silently."""
    if b"null" in encoded and _has_non_number(msgspec.to_builtins(values, enc_hook=encode_hook)):
        raise InvalidArguments(
            f"{_whose(task, what)}: NaN and infinity have no JSON form: pass None, or a string"
        )


def plain_json(value: Any, what: str) -> Any:
    """Return a value as JSON has it: texts, numbers, lists and objects."""
    try:
        encoded = _encode(value)
        if b"null" in encoded and _has_non_number(msgspec.to_builtins(value, enc_hook=encode_hook)):
            raise ValueError("NaN and infinity have no JSON form: pass None, or a string")
        return msgspec.json.decode(encoded)
    except _NO_JSON as error:
        raise InvalidArguments(f"{what!r}: {_no_json(error)}") from None


def _has_non_number(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        value = [*value, *value.values()]
    return isinstance(value, list | tuple) and any(_has_non_number(item) for item in value)


def check_payload(payload: bytes, limits: Limits, task: str, what: str = "payload") -> None:
    """Refuse what is too large, too deep, or can't be stored."""
    if len(payload) > limits.payload_bytes:
        raise PayloadTooLarge(
            f"{_whose(task, what)}: its {what} has {len(payload):,} bytes, the limit is "
            f"{limits.payload_bytes:,}. Store large data elsewhere and pass a reference"
        )
    # Cheap first: there can't be more levels than opening brackets.
    if payload.count(b"[") + payload.count(b"{") > limits.payload_depth:
        depth = json_depth(payload)
        if depth > limits.payload_depth:
            raise PayloadTooLarge(
                f"{_whose(task, what)}: its {what} is nested {depth} levels deep, the limit is "
                f"{limits.payload_depth}"
            )
    if payload.startswith(ENVELOPE_BYTES):
        raise InvalidArguments(
            f'{_whose(task, what)}: its {what} begins with the name "$rota-encrypted", which is '
            "Rota's own"
        )
    if has_nul(payload):
        raise InvalidArguments(
            f"{_whose(task, what)}: a string in its {what} holds a NUL character, which PostgreSQL "
            "can't store"
        )


def json_depth(payload: bytes) -> int:
    """Return how deeply arrays and objects are nested, in linear time and without building them."""
    brackets = _STRINGS.sub(b"", payload).translate(None, _NOT_BRACKETS)
    return max(accumulate(map(_STEPS.__getitem__, brackets), initial=0))


def has_nul(payload: bytes) -> bool:
    """Return whether a string in this JSON holds a NUL character."""
    return b"\\u0000" in payload and _NUL.search(payload) is not None
