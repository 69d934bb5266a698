"""Errors of a server (RFC 9457) as Rota's exceptions: the same that the library raises."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from rota.client.transport import Response
from rota.client.wire import Problem
from rota.errors import (
    AccessDenied,
    ConfigError,
    Conflict,
    DuplicateJob,
    HistoryNotKept,
    InvalidArguments,
    KeyConflict,
    NotFound,
    PayloadTooLarge,
    PreconditionFailed,
    QueueFull,
    RequestRefused,
    RotaError,
    SubmitError,
    TooManyRequests,
    UnknownTask,
)

_BY_CODE: dict[str, type[RotaError]] = {
    "payload-too-large": PayloadTooLarge,
    "unknown-task": UnknownTask,
    "history-not-kept": HistoryNotKept,
    "invalid-arguments": InvalidArguments,
    "invalid-job": SubmitError,
    "invalid": ConfigError,
    "precondition-failed": PreconditionFailed,
}
_BY_STATUS: dict[int, type[RotaError]] = {
    401: AccessDenied, 403: AccessDenied, 404: NotFound, 409: Conflict, 412: Conflict,
    429: TooManyRequests,
}  # fmt: skip
_LONGEST_WAIT = 3600.0


def error_from(response: Response) -> RotaError:
    """Return the exception of an error response, with its code, status, fields and request id."""
    try:
        problem = msgspec.json.decode(response.body, type=Problem)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        problem = Problem()  # a proxy's page
    error = make_error(problem.code, problem.detail or problem.title, response.status)
    if problem.code == "key-conflict":
        error = KeyConflict(problem.key, problem.subject)
        error.code = problem.code
    if problem.code == "duplicate-job":
        error = DuplicateJob(problem.task, problem.subject, problem.key)
    if problem.code == "queue-full":
        error = QueueFull(
            problem.detail, queue=problem.subject, quota=problem.quota, depth=problem.depth,
            max_depth=problem.max_depth,
        )  # fmt: skip
    error.subject = problem.subject or None
    error.status = response.status
    error.request_id = problem.request_id or None
    error.fields = {field.name: field.message for field in problem.fields}
    if isinstance(error, RequestRefused):
        error.retry_after = retry_after(response.headers)
    if response.repeated:
        error.add_note(
            "The request was repeated because a response was lost: it may have taken effect the first "
            "time."
        )
    return error


def make_error(code: str, detail: str, status: int = 0) -> RotaError:
    """Return the exception that the library raises for a code, or else one for the status."""
    if code == "queue-full":
        return QueueFull(detail)
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status) or RequestRefused
    return kind(detail or f"the server answered with {status}", code=code or None)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of Retry-After. A date is ignored: it would need a clock of this machine."""
    text = headers.get("retry-after", "").strip()
    return min(float(text), _LONGEST_WAIT) if text.isdecimal() and text.isascii() else None
