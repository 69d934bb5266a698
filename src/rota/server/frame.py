"""Wrap every request: its id, the time limit of its body, and the security headers of its answer.

A body must arrive at a kilobyte a second or faster, after a start of `request_timeout` seconds; a slower
one is answered with 408. `protocol` limits the time for headers and for reading the answer.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from typing import Any
from urllib.parse import unquote_to_bytes

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from rota.lib.ids import new_id
from rota.server.problems import MEDIA_TYPE, Problem, render

_REQUEST_ID = re.compile(rb"[A-Za-z0-9_.:-]{1,64}")
# The id of a request that brings none: this process, and a number.
_PROCESS = new_id().hex
_numbers = itertools.count(1)
_LEAST_RATE = 1_000.0  # bytes a second

_ALWAYS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
_OURS_ONLY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    b"font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    b"frame-ancestors 'none'"
)
_CSP = (b"content-security-policy", _OURS_ONLY)
_CSP_OF_DATA = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
# With no-referrer, browsers would send the forms of pages with the origin "null".
_REFERRER = (b"referrer-policy", b"same-origin")
_REFERRER_OF_DATA = (b"referrer-policy", b"no-referrer")
_NO_STORE = (b"cache-control", b"no-store")
_FOR_PAGES = (*_ALWAYS, _CSP, _REFERRER)
_FOR_DATA = (*_ALWAYS, _CSP_OF_DATA, _REFERRER_OF_DATA)
_DATA_AGE = b"rota-data-age"  # of what a read replica has answered: see `reading`
_HSTS = (b"strict-transport-security", b"max-age=31536000")


class Frame:
    """Wraps the whole application."""

    def __init__(self, app: ASGIApp, request_timeout: float) -> None:
        self._app = app
        self._timeout = request_timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        state: dict[str, Any] = scope.setdefault("state", {})
        state["request_id"] = request_id
        framed = _framed(send, request_id, state, secure=scope.get("scheme") == "https")
        if _has_nul(scope):
            problem = Problem(400, "nul", "the URL contains a NUL character, which can't be stored")
            await _send_problem(problem, request_id, framed)
            return
        if scope["method"] == "OPTIONS":
            framed = _with_methods(scope, framed)
        await self._app(scope, _Limited(receive, self._timeout), framed)


class _Limited:
    """Calls `receive` with a time limit until the body is complete."""

    def __init__(self, receive: Receive, timeout: float) -> None:
        self._receive = receive
        self._end = time.monotonic() + timeout
        self._arriving = True

    async def __call__(self) -> Any:
        if not self._arriving:
            return await self._receive()
        try:
            async with asyncio.timeout(self._end - time.monotonic()):
                message = await self._receive()
        except TimeoutError:
            self._arriving = False
            raise Problem(
                408, "timeout", "the body arrived too slowly", headers={"Connection": "close"}
            ) from None
        if message["type"] == "http.request":
            self._end += len(message.get("body", b"")) / _LEAST_RATE
            self._arriving = message.get("more_body", False)
        else:
            self._arriving = False
        return message


def _with_methods(scope: Scope, send: Send) -> Send:
    """Name all methods of a path in Allow: the framework only names those of the path's first route."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start" and "path_template" in scope:
            path = scope["path_template"]
            routes = [each for each in scope["litestar_app"].routes if each.path_format == path]
            methods = {str(method) for route in routes for method in route.methods}
            others = [pair for pair in message["headers"] if pair[0].lower() != b"allow"]
            message["headers"] = [*others, (b"allow", ", ".join(sorted(methods)).encode())]
        await send(message)

    return sending


def _request_id(scope: Scope) -> str:
    """Return the client's request id, so that both logs can be compared, or a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return value.decode()
    return f"{_PROCESS}-{next(_numbers):x}"


def _has_nul(scope: Scope) -> bool:
    query: bytes = scope.get("query_string", b"")
    return "\0" in scope["path"] or (b"%00" in query and b"\0" in unquote_to_bytes(query))


def _framed(send: Send, request_id: str, state: dict[str, Any], *, secure: bool) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            if "on_answer" in state:
                state["on_answer"]()
            named = {name.lower(): value for name, value in message["headers"]}
            is_page = named.get(b"content-type", b"").startswith(b"text/html")
            headers = [
                *message["headers"],
                (b"x-request-id", request_id.encode()),
                *(_FOR_PAGES if is_page else _FOR_DATA),
            ]
            if b"cache-control" not in named:
                headers.append(_NO_STORE)
            if "data_age" in state:
                headers.append((_DATA_AGE, b"%.1f" % state["data_age"]))
            if secure:
                headers.append(_HSTS)
            message["headers"] = headers
        await send(message)

    return sending


async def _send_problem(problem: Problem, request_id: str, send: Send) -> None:
    body, headers = render(problem, request_id)
    named = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    named += [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": problem.status, "headers": named})
    await send({"type": "http.response.body", "body": body, "more_body": False})
