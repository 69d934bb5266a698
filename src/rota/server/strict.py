"""Check that requests are as the OpenAPI document says, without conversions.

The framework is lenient: it reads `1e1` as a whole number, a number as a time since 1970, and in a body
`0` as false and `"5"` as a number. Query parameters are checked here before; bodies are decoded here,
into the type that their route declares. Before that, their JSON is checked: a parser recurses into
nested values, PostgreSQL can't store a NUL, and half of a surrogate pair is not text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cache
from typing import Any, get_args

import msgspec
from litestar.datastructures import MultiDict
from litestar.handlers import BaseRouteHandler
from litestar.params import QueryParameter

from rota.core.payloads import has_nul, json_depth
from rota.server.problems import Problem

_PLACE = re.compile(r" - at `\$\.?(.*)`$")
_READABLE: Mapping[type, tuple[re.Pattern[str], str]] = {
    bool: (re.compile(r"true|false"), "must be true or false"),
    int: (re.compile(r"-?[0-9]{1,19}"), "must be a whole number"),
    float: (re.compile(r"-?[0-9]{1,19}(\.[0-9]{1,19})?"), "must be a number"),
    datetime: (
        re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ].{1,30}"),
        "must be a date and time with a time zone, such as 2027-01-31T12:00:00Z",
    ),
}


def check_query(handler: BaseRouteHandler, query: MultiDict[str]) -> None:
    """Refuse a parameter whose text isn't of the type that the route declares."""
    wrong = {
        name: message
        for name, (pattern, message) in _checked(handler).items()
        if not all(map(pattern.fullmatch, query.getall(name, [])))
    }
    if wrong:
        detail = ", ".join(f"{name}: {message}" for name, message in wrong.items())
        raise Problem(400, "invalid", detail, fields=wrong)


@cache
def _checked(handler: BaseRouteHandler) -> dict[str, tuple[re.Pattern[str], str]]:
    """Return the pattern and the message of each query parameter, by name."""
    found: dict[str, tuple[re.Pattern[str], str]] = {}
    for name, field in handler.parsed_fn_signature.parameters.items():
        definition = field.kwarg_definition
        if isinstance(definition, QueryParameter):
            for kind in _kinds(field.annotation):
                if kind in _READABLE:
                    found[definition.name or name] = _READABLE[kind]
    return found


def _kinds(annotation: Any) -> Iterator[Any]:
    yield annotation
    for inner in get_args(annotation):
        yield from _kinds(inner)


@cache
def body_decoder(handler: BaseRouteHandler) -> msgspec.json.Decoder[Any] | None:
    """Return the decoder of a route's body; None if it declares none."""
    field = handler.parsed_fn_signature.parameters.get("data")
    return None if field is None else msgspec.json.Decoder(field.annotation)


def decode_strictly(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    """Decode a body; an error names the field that is wrong."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise of_validation(error) from None
    except msgspec.DecodeError as error:
        raise Problem(400, "invalid", f"the body is not JSON: {error}") from None


def of_validation(error: msgspec.ValidationError) -> Problem:
    message = str(error)
    place = _PLACE.search(message)
    field = place[1] if place else ""
    wrong = _PLACE.sub("", message)
    return Problem(400, "invalid", f"{field}: {wrong}" if field else wrong, fields={field: wrong})


@cache
def needed_body(handler: BaseRouteHandler) -> tuple[str, dict[str, str]] | None:
    """Return the error for a missing body, in all and by field; None if the body is optional."""
    field = handler.parsed_fn_signature.parameters.get("data")
    if field is None or field.is_optional or field.has_default:
        return None
    struct = isinstance(field.annotation, type) and issubclass(field.annotation, msgspec.Struct)
    if not struct:
        return "a body is needed: JSON", {"body": "is missing"}
    fields = msgspec.structs.fields(field.annotation)
    needed = [one.encode_name for one in fields if one.required]
    rest = [one.encode_name for one in fields if not one.required]
    detail = "a body is needed: a JSON object"
    if needed:
        detail += f" with {', '.join(needed)}"
    if rest:
        detail += f"{' and' if needed else ' with'} optionally {', '.join(rest)}"
    return detail, dict.fromkeys(needed or ["body"], "is missing")


# Text in which every escaped half of a surrogate pair is next to its other half. Possessive: each byte
# is read once.
_WHOLE_PAIRS = re.compile(
    rb"(?:[^\\]++"
    rb"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|\\u(?![dD][89a-fA-F][0-9a-fA-F]{2})"
    rb"|\\[^u])*+\\?",
    re.DOTALL,
)


def has_half_surrogate(body: bytes) -> bool:
    """Return whether a string has half of a surrogate pair."""
    if b"\\ud" not in body and b"\\uD" not in body:
        return False
    return _WHOLE_PAIRS.fullmatch(body) is None


def check_json(body: bytes, max_depth: int) -> None:
    """Refuse a body that is nested too deeply or is not text that can be stored."""
    # The cheap check first: there can't be more levels than opening brackets.
    if body.count(b"[") + body.count(b"{") > max_depth and (depth := json_depth(body)) > max_depth:
        raise Problem(
            400, "too-deep", f"the body is nested {depth} levels deep, the limit is {max_depth}"
        )
    if has_nul(body) or b"\0" in body:
        raise Problem(
            400, "nul", "a string in the body contains a NUL character, which can't be stored"
        )
    if has_half_surrogate(body):
        raise Problem(400, "not-text", "a string in the body contains half of a surrogate pair")
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Problem(
            400, "not-text", f"the body is not UTF-8: byte {error.start} can't be read"
        ) from None
