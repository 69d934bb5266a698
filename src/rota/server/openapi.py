"""Make the OpenAPI document from the routes, with the errors that each of them may return."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from litestar import Litestar
from litestar.di import Provide
from litestar.openapi import OpenAPIConfig
from litestar.types import ControllerRouterHandler

import rota
from rota.core.access import Policy
from rota.server.policy import RouteInfo
from rota.server.problems import MEDIA_TYPE
from rota.server.requests import RotaRequest

_DESCRIPTION = """\
Jobs, schedules, queues and nodes over HTTP.

Send a token with each request: `Authorization: Bearer rota_...`. It belongs to a namespace, which
`X-Rota-Namespace` or `?namespace=` selects if there are several. Errors are
`application/problem+json`.
"""

_ANY = {
    400: "The request can't be read",
    408: "The body arrived too slowly",
    413: "The body is too large",
    422: "The request is invalid",
    503: "The database or the server is not available",
}
_GATED = {401: "No valid token or session", 403: "Your role or token doesn't permit it"}
_LOOKED_UP = {404: "It does not exist in this namespace"}
_CHANGES = {
    409: "It conflicts with the current state",
    412: "It was changed meanwhile",
    415: "The media type is not supported",
    428: "A precondition is required",
    429: "A limit is exceeded; see Retry-After",
}


def make_document(
    routes: Iterable[ControllerRouterHandler], dependencies: Mapping[str, Provide],
    table: Iterable[RouteInfo],
) -> bytes:  # fmt: skip
    """Return the document as JSON."""
    # A separate app: OpenAPI adds routes, which the server must not have.
    described = Litestar(
        [*routes],
        dependencies=dict(dependencies),
        request_class=RotaRequest,
        logging_config=None,
        openapi_config=OpenAPIConfig(
            title="Rota", version=rota.__version__, description=_DESCRIPTION,
            use_handler_docstrings=True,
        ),
    )  # fmt: skip
    document = described.openapi_schema.to_schema()
    policies = {(route.method.lower(), route.path): route.policy for route in table}
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if isinstance(operation, dict) and (method, path) in policies:
                _complete(operation, method, policies[method, path])
    components = document.setdefault("components", {})
    components["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer"},
        "session": {"type": "apiKey", "in": "cookie", "name": "rota_session"},
    }
    schemas = components.setdefault("schemas", {})
    schemas["Problem"] = _PROBLEM
    _without_offset(schemas)
    _naming_a_task(schemas)
    return msgspec.json.encode(document)


def _without_offset(schemas: dict[str, Any]) -> None:
    """Describe wall times, which have no offset and so are no date-time of JSON Schema."""
    for name, schema in schemas.items():
        if name.rpartition("_")[2] == "Occurrence" and "local" in schema.get("properties", {}):
            schema["properties"]["local"] = _WALL_TIME


def _naming_a_task(schemas: dict[str, Any]) -> None:
    """Describe that a submit names its task, by one of two words; types of fields can't say so."""
    words = ("task", "job_type")
    for schema in schemas.values():
        if all(word in schema.get("properties", {}) for word in words):
            schema["anyOf"] = [
                {"required": [word], "properties": {word: {"type": "string"}}} for word in words
            ]


def _complete(operation: dict[str, Any], method: str, policy: Policy) -> None:
    statuses = dict(_ANY)
    if policy.role is not None or method != "get":
        statuses |= _GATED
    if policy.role is not None:
        operation["security"] = [{"token": []}, {"session": []}]
    changes = method not in ("get", "head")
    # A change may also name in its body what it is about.
    if changes or any(each["in"] == "path" for each in operation.get("parameters", ())):
        statuses |= _LOOKED_UP
    if changes:
        statuses |= _CHANGES
    responses = operation.setdefault("responses", {})
    responses.pop("400", None)  # Litestar's own description of its own errors, which are never sent
    for status, description in statuses.items():
        responses.setdefault(
            str(status),
            {
                "description": description,
                "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
            },
        )


_TEXT = {"type": "string"}
_WALL_TIME = {
    "type": "string",
    "pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?$",
    "description": "The wall time in the schedule's zone, without an offset.",
}
_PROBLEM = {
    "title": "Problem",
    "description": "RFC 9457. `code` is stable; `detail` is for people.",
    "type": "object",
    "required": ["type", "title", "status"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": _TEXT,
        "status": {"type": "integer"},
        "detail": _TEXT,
        "code": _TEXT,
        "request_id": _TEXT,
        "fields": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "message"],
                "properties": {"name": _TEXT, "message": _TEXT},
            },
        },
    },
}
