"""Encoding of new jobs, and the submission of many as NDJSON.

Jobs are taken from an iterable as they are needed, and sent in requests of up to 2,000 lines (which the
server stores in one transaction), so that the client's memory doesn't grow with their number. Each line
has a key: the caller's, or one made when it is encoded. So a request whose response was lost, or that a
quota ended in the middle, is sent again byte for byte, and no job is stored twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Literal, TypeAlias
from uuid import UUID

import msgspec

from rota.client import wire
from rota.client.exchanges import Backoff, Exchange, Sleep
from rota.client.problems import error_from, make_error
from rota.client.transport import Request
from rota.core.codec import encode_hook
from rota.core.json_values import check_numbers, encode_values
from rota.errors import InvalidArguments, QueueFull, ServerUnavailable, SubmitError
from rota.lib.ids import new_id
from rota.lib.patience import Patience

_LINES = 2_000
_BYTES = 3_500_000  # less than the server takes for one transaction
_TEMPORARY = frozenset({"quota", "too-many-requests", "unavailable"})
_MOST_ATTEMPTS = 20
_TIMES = ("delay", "unique", "debounce", "debounce_max", "throttle")
_OPTIONS = frozenset(wire.NewJobDict.__annotations__)

OnError: TypeAlias = Literal["raise", "continue", "stop"]


class JobsRefused(SubmitError):
    """Raised when some of many jobs were refused; `summary` lists them. The others are stored."""

    def __init__(self, summary: wire.ManySubmitted) -> None:
        self.summary = summary
        first = summary.errors[0]
        super().__init__(
            f"{len(summary.errors):,} of {len(summary.ids):,} jobs were refused; the first is number "
            f"{first.line}: {first.detail}"
        )


class _Line(msgspec.Struct):
    """A line of the response: about a job, or about the whole request."""

    line: int = 0
    id: UUID | None = None
    existed: bool = False
    duplicate: bool = False
    code: str = ""
    detail: str = ""
    stopped: wire.LineRefused | None = None
    summary: dict[str, Any] | None = None


def new_key() -> str:
    return f"auto-{new_id()}"


def encode_job(given: Mapping[str, Any]) -> bytes:
    """Encode the arguments of a submit, without those that are None."""
    if unknown := sorted(set(given) - _OPTIONS):
        known = ", ".join(sorted(_OPTIONS))
        raise InvalidArguments(f"unknown option {unknown[0]!r}; known: {known}")
    job = {name: value for name, value in given.items() if value is not None}
    for field in _TIMES:
        if isinstance(time := job.get(field), timedelta):
            job[field] = time.total_seconds()
    for several in ("needs", "tags"):
        if isinstance(named := job.get(several), str):
            job[several] = [named]
    task = str(job.get("task"))
    _check_values(job, task)
    try:
        return msgspec.json.encode(job, enc_hook=encode_hook)
    except (TypeError, ValueError, RecursionError, UnicodeEncodeError) as error:
        raise InvalidArguments(f"task {task!r}: can't be sent as JSON: {error}") from None


def _check_values(job: dict[str, Any], task: str) -> None:
    """Refuse NaN and infinity, which would be sent as null, and encode the payload.

    It is encoded as it is without a server: what is repeated with its key must be the same.
    """
    for name, value in job.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidArguments(f"task {task!r}: {name} must be a finite number, not {value!r}")
    if isinstance(headers := job.get("headers"), Mapping):
        check_numbers(b"null", headers, task, "headers field")
    if isinstance(values := job.get("payload"), Mapping):
        encoded = encode_values(values, task)
        check_numbers(encoded, values, task)
        job["payload"] = msgspec.Raw(encoded)


def submit_many(
    jobs: Iterable[wire.NewJobDict], on_error: OnError, patience: Patience | None = None
) -> Exchange[wire.ManySubmitted]:
    """Send the jobs in chunks. `patience`: for how long to wait for room in a full queue."""
    done = wire.ManySubmitted()
    stop = on_error == "stop"
    for chunk in _chunks(jobs):
        yield from _send(chunk, done, stop, patience)
        if stop and done.errors:
            break
    if done.errors and on_error != "continue":
        raise JobsRefused(done)
    return done


def _chunks(jobs: Iterable[Mapping[str, Any]]) -> Iterator[list[tuple[bytes, bool]]]:
    """Yield chunks of encoded jobs, each with whether its key is the caller's own."""
    chunk: list[tuple[bytes, bool]] = []
    size = 0
    for job in jobs:
        own = job.get("key") is not None
        line = encode_job(job if own else {**job, "key": new_key()})
        if chunk and (len(chunk) >= _LINES or size + len(line) > _BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append((line, own))
        size += len(line) + 1
    if chunk:
        yield chunk


def _send(
    chunk: list[tuple[bytes, bool]], done: wire.ManySubmitted, stop: bool, patience: Patience | None
) -> Exchange[None]:
    request = Request(
        method="POST", path="/v1/jobs:bulk", body=b"\n".join(line for line, _ in chunk),
        query={"answer": "lines", "on_error": "stop" if stop else "continue"},
        headers={"Content-Type": "application/x-ndjson"}, repeatable=True,
    )  # fmt: skip
    backoff = Backoff()
    attempts_left = _MOST_ATTEMPTS
    while True:
        attempts_left -= 1
        response = yield request
        assert response is not None
        if not response.is_success:
            raise error_from(response)
        lines = [msgspec.json.decode(line, type=_Line) for line in response.body.splitlines()]
        if not lines or lines[-1].summary is None:
            raise ServerUnavailable("the response is incomplete", in_doubt=True)
        stopped = next((line.stopped for line in lines if line.stopped is not None), None)
        if stopped is None:
            _count(chunk, lines[:-1], done)
            warnings = lines[-1].summary.get("warnings", [])
            done.warnings += [each for each in warnings if each not in done.warnings]
            return
        if stopped.code == QueueFull.code:
            wait = patience.pause(1.0) if patience else None
            if wait is None:
                raise make_error(stopped.code, stopped.detail, 429)
            yield Sleep(wait)
            continue
        if stopped.code not in _TEMPORARY or attempts_left <= 0:
            raise make_error(stopped.code, stopped.detail, 429 if stopped.code == "quota" else 0)
        yield Sleep(1.0 + backoff.next())


def _count(chunk: list[tuple[bytes, bool]], lines: list[_Line], done: wire.ManySubmitted) -> None:
    before = len(done.ids)
    ids: list[UUID | None] = [None] * len(lines)
    for line in lines:
        ids[line.line - 1] = line.id
        if line.id is None:
            done.errors.append(wire.LineRefused(before + line.line, line.code, line.detail))
        elif line.duplicate or (line.existed and chunk[line.line - 1][1]):
            done.existed += 1
        else:
            done.stored += 1  # or by an earlier attempt of this request
    done.ids += ids
