"""What is sent is what the OpenAPI document says, and isn't made to fit.

The framework is lenient: it reads `1e1` as a whole number, a number as a time since 1970, and in a body
`0` as false and `"5"` as a number. Query parameters are judged here before it sees them; bodies are
decoded here, straight into the type that their route declares.
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
        name: told
        for name, (pattern, told) in _judged(handler).items()
        if not all(map(pattern.fullmatch, query.getall(name, [])))
    }
    if wrong:
        said = ", ".join(f"{name}: {told}" for name, told in wrong.items())
        raise Problem(400, "invalid", said, fields=wrong)


@cache
def _judged(handler: BaseRouteHandler) -> dict[str, tuple[re.Pattern[str], str]]:
    """By the parameter's name in the query."""
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
    """None: the route declares no body."""
    field = handler.parsed_fn_signature.parameters.get("data")
    return None if field is None else msgspec.json.Decoder(field.annotation)


def decode_strictly(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    """What is wrong is told with the field it is about."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise of_validation(error) from None
    except msgspec.DecodeError as error:
        raise Problem(400, "invalid", f"the body is no JSON: {error}") from None


def of_validation(error: msgspec.ValidationError) -> Problem:
    message = str(error)
    place = _PLACE.search(message)
    field = place[1] if place else ""
    told = _PLACE.sub("", message)
    return Problem(400, "invalid", f"{field}: {told}" if field else told, fields={field: told})


@cache
def needed_body(handler: BaseRouteHandler) -> tuple[str, dict[str, str]] | None:
    """What to tell who sends none, also by field; None when the route can do without."""
    field = handler.parsed_fn_signature.parameters.get("data")
    if field is None or field.is_optional or field.has_default:
        return None
    struct = isinstance(field.annotation, type) and issubclass(field.annotation, msgspec.Struct)
    if not struct:
        return "a body is needed: JSON", {"body": "is missing"}
    fields = msgspec.structs.fields(field.annotation)
    needed = [one.encode_name for one in fields if one.required]
    rest = [one.encode_name for one in fields if not one.required]
    told = "a body is needed: a JSON object"
    if needed:
        told += f" with {', '.join(needed)}"
    if rest:
        told += f"{' and,' if needed else ' with,'} if you like, {', '.join(rest)}"
    return told, dict.fromkeys(needed or ["body"], "is missing")
