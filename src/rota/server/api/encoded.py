"""An answer that is bytes already, for the busiest route."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
from litestar import Response
from litestar.types import ASGIApp, HTTPResponseStartEvent, Receive, Scope, Send

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode
_JSON = (b"content-type", b"application/json")


class Encoded(Response[T]):
    """Its content as JSON, and the headers it is given. What the framework else does to an answer takes
    as long as storing a job."""

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
