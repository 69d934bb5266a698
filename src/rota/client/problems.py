"""A server's problem (RFC 9457) as one of Rota's exceptions: the same that the library raises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from rota.errors import (
    AccessDenied,
    ConfigError,
    Conflict,
    InvalidArguments,
    KeyConflict,
    NotFound,
    PayloadTooLarge,
    PreconditionFailed,
    RequestRefused,
    RotaError,
    SubmitError,
    TooManyRequests,
    UnknownTask,
)

_BY_CODE: dict[str, type[RotaError]] = {
    "payload-too-large": PayloadTooLarge,
    "unknown-task": UnknownTask,
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


class _Field(msgspec.Struct):
    name: str
    message: str


class _Told(msgspec.Struct):
    title: str = ""
    detail: str = ""
    code: str = ""
    subject: str = ""
    key: str = ""
    request_id: str = ""
    fields: list[_Field] = []


class Heard(Protocol):
    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def body(self) -> bytes: ...
    @property
    def repeated(self) -> bool: ...


def error_of(answer: Heard) -> RotaError:
    """With `code`, `status`, `fields` and `request_id` as the server told them."""
    told = _told(answer)
    error = make_error(told.code, told.detail or told.title, answer.status)
    if told.code == "key-conflict":
        error = KeyConflict(told.key, told.subject)
        error.code = told.code
    error.subject = told.subject or None
    error.status = answer.status
    error.request_id = told.request_id or None
    error.fields = {field.name: field.message for field in told.fields}
    if isinstance(error, RequestRefused):
        error.retry_after = retry_after(answer.headers)
    if answer.repeated:
        error.add_note(
            "It was asked again after an answer had been lost: perhaps it was done the first time."
        )
    return error


def make_error(code: str, detail: str, status: int = 0) -> RotaError:
    """The exception that the library would have raised, or else one by its status."""
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status) or RequestRefused
    return kind(detail or f"the server answered with {status}", code=code or None)


def _told(answer: Heard) -> _Told:
    try:
        return msgspec.json.decode(answer.body, type=_Told)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        # A proxy's page.
        return _Told(detail=f"the server answered with {answer.status}")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """In seconds. As a date it would have to be judged by a clock of ours: then it is left aside."""
    text = headers.get("retry-after", "").strip()
    return min(float(text), _LONGEST_WAIT) if text.isdecimal() and text.isascii() else None
