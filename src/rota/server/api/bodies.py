"""Bodies that are decoded here and not by the framework: straight into a struct, in one pass.

A payload is kept as it came (`msgspec.Raw`), which the framework's way, through Python objects, can't
do; and it is the shortest way for the busiest route. The OpenAPI document is told what they look like.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import msgspec
from litestar.openapi.spec import Operation

from rota.operations.job_request import JobRequest
from rota.server.problems import Problem
from rota.server.requests import RotaRequest, kind_of
from rota.server.strict import decode_strictly

NDJSON = "application/x-ndjson"

T = TypeVar("T")


async def decode_body(request: RotaRequest, decoder: msgspec.json.Decoder[T]) -> T:
    """What is wrong is told with the field it is about."""
    kind = kind_of(request.headers.get("content-type", "application/json"))
    if kind != "application/json":
        raise Problem(415, "unsupported-media-type", f"send application/json, not {kind[:100]!r}")
    found: T = decode_strictly(decoder, await request.body())
    return found


@dataclass
class DecodedHere(Operation):
    """An operation with a body that the framework doesn't see."""

    body: ClassVar[dict[str, Any]] = {}

    def to_schema(self) -> dict[str, Any]:
        return {**super().to_schema(), "requestBody": self.body}


def schema_of(kind: Any) -> dict[str, Any]:
    """Without references: it stands in the middle of another document."""
    (schema,), components = msgspec.json.schema_components([kind])
    name = schema["$ref"].rpartition("/")[2]
    inline: dict[str, Any] = components[name]
    return inline


@dataclass
class SubmitOperation(DecodedHere):
    body: ClassVar[dict[str, Any]] = {
        "required": True,
        "content": {"application/json": {"schema": schema_of(JobRequest)}},
    }

    def to_schema(self) -> dict[str, Any]:
        schema = super().to_schema()
        header = {
            "name": "Idempotency-Key",
            "in": "header",
            "description": "The same key, task and payload give the same job back.",
            "schema": {"type": "string", "minLength": 1, "maxLength": 255},
        }
        trace = {
            "name": "traceparent",
            "in": "header",
            "description": "W3C trace context: it travels with the job (as does `tracestate`).",
            "schema": {"type": "string", "maxLength": 200},
        }
        schema["parameters"] = [*schema.get("parameters", ()), header, trace]
        return schema


@dataclass
class BulkOperation(DecodedHere):
    body: ClassVar[dict[str, Any]] = {
        "required": True,
        "description": "A job per line, each as in `POST /v1/jobs`.",
        "content": {NDJSON: {"schema": {"type": "string"}}},
    }

    def to_schema(self) -> dict[str, Any]:
        schema = super().to_schema()
        schema["responses"]["200"]["content"][NDJSON] = {"schema": {"type": "string"}}
        return schema
