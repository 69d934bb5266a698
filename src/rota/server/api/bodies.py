"""Bodies that are decoded and encoded here instead of by the framework, in one pass.

A payload is kept as it came (`msgspec.Raw`), which the framework can't do, since it decodes bodies to
Python objects; and these are the bodies of the busiest route.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from litestar import Response
from litestar.openapi.spec import Operation
from litestar.types import ASGIApp, HTTPResponseStartEvent, Receive, Scope, Send

from rota.server.problems import Problem
from rota.server.requests import RotaRequest, kind_of
from rota.server.strict import decode_strictly

NDJSON = "application/x-ndjson"

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode
_JSON = (b"content-type", b"application/json")


async def decode_body(request: RotaRequest, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode a body; an error names the field that is wrong."""
    kind = kind_of(request.headers.get("content-type", "application/json"))
    if kind != "application/json":
        raise Problem(415, "unsupported-media-type", f"send application/json, not {kind[:100]!r}")
    found: T = decode_strictly(decoder, await request.body())
    return found


def describe_body(
    kind: Any, *headers: dict[str, Any], media_type: str = "application/json"
) -> type[Operation]:
    """Return the OpenAPI operation of a route whose body and headers the framework doesn't see.

    `kind` is the type of a JSON body, or None for lines of text, which are then also an answer.
    """
    text = {media_type: {"schema": {"type": "string"}}}
    content = text if kind is None else {media_type: {"schema": _schema_of(kind)}}

    @dataclass
    class Described(Operation):
        def to_schema(self) -> dict[str, Any]:
            schema = super().to_schema()
            schema["requestBody"] = {"required": True, "content": content}
            parameters = [{"in": "header", **header} for header in headers]
            schema["parameters"] = [*schema.get("parameters", ()), *parameters]
            if kind is None:
                schema["responses"]["200"]["content"] |= text
            return schema

    return Described


def _schema_of(kind: Any) -> dict[str, Any]:
    """Return a JSON schema without references, since it is put into another document."""
    (schema,), components = msgspec.json.schema_components([kind])
    inline: dict[str, Any] = components[schema["$ref"].rpartition("/")[2]]
    return inline


class Encoded(Response[T]):
    """An answer that is encoded as JSON, with the given headers and nothing else: what the framework
    adds takes as long as storing a job."""

    def __init__(
        self, content: T, status_code: int, headers: Iterable[tuple[bytes, bytes]] = ()
    ) -> None:
        self.content = content
        self.status_code = self._status = status_code
        self._headers = headers

    def to_asgi_response(self, *_: Any, **__: Any) -> ASGIApp:  # type: ignore[override]
        return self._answer

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = _encode(self.content)
        headers = [_JSON, (b"content-length", b"%d" % len(body)), *self._headers]
        start: HTTPResponseStartEvent = {
            "type": "http.response.start", "status": self._status, "headers": headers,
        }  # fmt: skip
        await send(start)
        await send({"type": "http.response.body", "body": body, "more_body": False})
