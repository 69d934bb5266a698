"""Around every request: its id, its time limit, and what the answer says to browsers.

A body must arrive at a kilobyte a second or faster, after a start of `request_timeout` seconds; one that
doesn't is answered 408. How slowly headers may come and answers may be taken is the protocol's business.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote_to_bytes

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from rota.lib.ids import new_id
from rota.server.problems import MEDIA_TYPE, Problem, render

log = logging.getLogger("rota.server")

_REQUEST_ID = re.compile(rb"[A-Za-z0-9_.:-]{1,64}")
# Of requests that bring no id: this process, and a number.
_OURS = new_id().hex
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
# Pages tell themselves where they are: without it browsers send forms with an origin of "null".
_REFERRER = (b"referrer-policy", b"same-origin")
_REFERRER_OF_DATA = (b"referrer-policy", b"no-referrer")
_NO_STORE = (b"cache-control", b"no-store")
_FOR_PAGES = (*_ALWAYS, _CSP, _REFERRER)
_FOR_DATA = (*_ALWAYS, _CSP_OF_DATA, _REFERRER_OF_DATA)
_HSTS = (b"strict-transport-security", b"max-age=31536000")


class Frame:
    """Around the whole application. `record` is called before an answer begins, with its status."""

    def __init__(
        self, app: ASGIApp, request_timeout: float, record: Callable[[Scope, int], Awaitable[None]]
    ) -> None:
        self._app = app
        self._timeout = request_timeout
        self._record = record

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        state: dict[str, Any] = scope.setdefault("state", {})
        state["request_id"] = request_id
        framed = _framed(send, request_id, secure=scope.get("scheme") == "https")
        if _has_nul(scope):
            problem = Problem(
                400, "nul", "the address holds a NUL character, which can't be stored"
            )
            await _send_problem(problem, request_id, framed)
            return
        if scope["method"] == "OPTIONS":
            framed = _with_methods(scope, framed)
        recorded = self._recorded(scope, request_id, framed)
        await self._app(scope, _Limited(receive, self._timeout), recorded)

    def _recorded(self, scope: Scope, request_id: str, send: Send) -> Send:
        """What can't be recorded isn't confirmed: another answer takes the place of this one."""
        replaced = False

        async def sending(message: Message) -> None:
            nonlocal replaced
            if message["type"] == "http.response.start":
                try:
                    await self._record(scope, message["status"])
                except Exception as error:
                    log.error(
                        "request %s: its changes were not recorded", request_id, exc_info=error
                    )
                    replaced = True
                    detail = (
                        f"it was done, but could not be recorded; the log has it as {request_id}"
                    )
                    await _send_problem(Problem(500, "internal", detail), request_id, send)
            if not replaced:
                await send(message)

        return sending


class _Limited:
    """`receive`, for as long as there is a body to come."""

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
                408, "timeout", "the body came too slowly", headers={"Connection": "close"}
            ) from None
        if message["type"] == "http.request":
            self._end += len(message.get("body", b"")) / _LEAST_RATE
            self._arriving = message.get("more_body", False)
        else:
            self._arriving = False
        return message


def _with_methods(scope: Scope, send: Send) -> Send:
    """The framework's answer names only the methods that came with the path's first route."""

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
    """The client's own, if it gave a usable one: so that its log and ours can be laid side by side."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return value.decode()
    return f"{_OURS}-{next(_numbers):x}"


def _has_nul(scope: Scope) -> bool:
    query: bytes = scope.get("query_string", b"")
    return "\0" in scope["path"] or (b"%00" in query and b"\0" in unquote_to_bytes(query))


def _framed(send: Send, request_id: str, *, secure: bool) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            named = {name.lower(): value for name, value in message["headers"]}
            is_page = named.get(b"content-type", b"").startswith(b"text/html")
            headers = [
                *message["headers"],
                (b"x-request-id", request_id.encode()),
                *(_FOR_PAGES if is_page else _FOR_DATA),
            ]
            if b"cache-control" not in named:
                headers.append(_NO_STORE)
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
