"""Errors as problem+json (RFC 9457): a stable code, what happened, to what, and what to do next.

An error that is not listed here is answered with a 500 without details, and logged with its request id.
"""

from __future__ import annotations

import logging
import math
from http import HTTPStatus
from typing import Any

import asyncpg
import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException

from rota import errors
from rota.client import wire

log = logging.getLogger("rota.server")

MEDIA_TYPE = "application/problem+json"
TYPE_BASE = "urn:rota:problem:"


class ProblemDetails(wire.Problem, frozen=True, kw_only=True, omit_defaults=True):
    """The body of an error (RFC 9457). `subject`: the id or name of what it is about. `key`: the
    idempotency key that already belongs to another job, `subject`; or the unique key. `quota`, `depth`
    and `max_depth`: of a queue, or of its namespace, that is full."""

    type: str
    title: str
    status: int


class Problem(Exception):
    """Raised by handlers to answer with an error."""

    def __init__(
        self, status: int, code: str, detail: str, *, fields: dict[str, str] | None = None,
        headers: dict[str, str] | None = None, retry_after: float | None = None,
        subject: str = "", key: str = "", task: str = "", full: errors.QueueFull | None = None,
    ) -> None:  # fmt: skip
        super().__init__(detail)
        self.full = full
        self.subject = subject
        self.key = key
        self.task = task
        self.status = status
        self.code = code
        self.detail = detail
        self.fields = fields or {}
        self.headers = dict(headers or {})
        if retry_after is not None:
            self.headers["Retry-After"] = str(max(1, math.ceil(retry_after)))


# The first class that matches decides.
_STATUSES: tuple[tuple[type[errors.RotaError], int, str], ...] = (
    (errors.QueueFull, 429, "queue-full"),
    (errors.KeyConflict, 409, "key-conflict"),
    (errors.DuplicateJob, 409, "duplicate-job"),
    (errors.PayloadTooLarge, 413, "payload-too-large"),
    (errors.UnknownTask, 422, "unknown-task"),
    (errors.InvalidArguments, 422, "invalid-arguments"),
    (errors.SubmitError, 422, "invalid-job"),
    (errors.HistoryNotKept, 404, "history-not-kept"),
    (errors.NotFound, 404, "not-found"),
    (errors.AccessDenied, 403, "forbidden"),
    (errors.PreconditionFailed, 412, "precondition-failed"),
    (errors.Conflict, 409, "conflict"),
    (errors.TooManyRequests, 429, "too-many-requests"),
    (errors.TooMuchToRead, 503, "too-much-to-read"),
    (errors.KeyMissing, 503, "key-missing"),  # the server's fault, not the client's
    (errors.ConfigError, 422, "invalid"),
)

_CODES = {
    400: "bad-request", 401: "unauthorized", 403: "forbidden", 404: "not-found",
    405: "method-not-allowed", 406: "not-acceptable", 408: "timeout", 409: "conflict",
    411: "length-required", 412: "precondition-failed", 413: "payload-too-large",
    414: "uri-too-long", 415: "unsupported-media-type", 422: "invalid",
    428: "precondition-required", 429: "too-many-requests", 431: "headers-too-large",
    503: "unavailable",
}  # fmt: skip


def to_problem(error: BaseException) -> Problem | None:
    """Return the problem to answer with; None for an error whose details are not for clients."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, ValidationException):
        return _of_validation(error)
    if isinstance(error, HTTPException) and error.status_code < 500:
        code = _CODES.get(error.status_code, "error")
        headers = {k: v for k, v in (error.headers or {}).items() if k.lower() == "allow"}
        return Problem(error.status_code, code, error.detail, headers=headers)
    for kind, status, code in _STATUSES:
        if isinstance(error, kind):
            return Problem(
                status, error.code or code, str(error), fields=dict(error.fields),
                subject=error.subject or "", key=getattr(error, "key", ""),
                task=getattr(error, "task", ""),
                headers={"ETag": tag} if (tag := getattr(error, "tag", None)) else None,
                retry_after=getattr(error, "retry_after", None),
                full=error if isinstance(error, errors.QueueFull) else None,
            )  # fmt: skip
    if isinstance(error, errors.StoreUnavailable | errors.SchemaMismatch):
        # The message may name hosts and users.
        return Problem(
            503, "unavailable", "the database is not available at the moment", retry_after=2
        )
    if isinstance(error, asyncpg.DataError):
        # A number or time out of the range of PostgreSQL, or text that it can't store.
        return Problem(422, "invalid", "a value can't be stored: it is out of range, or not text")
    return None


def _of_validation(error: ValidationException) -> Problem:
    extra = error.extra if isinstance(error.extra, list) else []
    fields = {
        str(item.get("key", "")): str(item.get("message", ""))
        for item in extra
        if isinstance(item, dict)
    }
    named = ", ".join(f"{name}: {message}" for name, message in fields.items())
    return Problem(400, "invalid", named or error.detail, fields=fields)


def render(problem: Problem, request_id: str) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers of the answer."""
    details = ProblemDetails(
        type=TYPE_BASE + problem.code,
        title=_title(problem.status),
        status=problem.status,
        detail=problem.detail,
        code=problem.code,
        subject=problem.subject,
        key=problem.key,
        task=problem.task,
        quota=problem.full.quota if problem.full else "",
        depth=problem.full.depth if problem.full else None,
        max_depth=problem.full.max_depth if problem.full else None,
        request_id=request_id,
        fields=[wire.ProblemField(*item) for item in problem.fields.items()],
    )
    headers = dict(problem.headers)
    if problem.status == 401:
        headers.setdefault("WWW-Authenticate", 'Bearer realm="rota"')
    return msgspec.json.encode(details), headers


def _title(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"


def describe(request: Request[Any, Any, Any], error: Exception) -> Problem:
    """Return the problem of an error. An unexpected error is logged, and only its log entry is named."""
    problem = to_problem(error)
    if problem is not None:
        return problem
    request_id = _request_id(request)
    path = request.scope.get("path", "")
    log.error("request %s: %s %s failed", request_id, request.method, path, exc_info=error)
    return Problem(
        500, "internal", f"internal error; the server's log has the details under {request_id}"
    )


def to_response(request: Request[Any, Any, Any], problem: Problem) -> Response[bytes]:
    body, headers = render(problem, _request_id(request))
    return Response(body, status_code=problem.status, headers=headers, media_type=MEDIA_TYPE)


def _request_id(request: Request[Any, Any, Any]) -> str:
    request_id: str = request.scope["state"].get("request_id", "")
    return request_id
