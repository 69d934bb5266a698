"""Many jobs, as requests of NDJSON.

Protocol. The jobs are taken from an iterable as they are needed, and sent in requests of up to 2,000
lines (which the server stores in one transaction), so that memory stays the same however many there are.
Each line has a key: its own, or one made here when it is first encoded. So a request whose answer was
lost, or that was ended in the middle by a quota, is sent again byte for byte, and what was stored gives
the same job back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, TypeAlias
from uuid import UUID

import msgspec

from rota.client import wire
from rota.client.asking import Ask, Pause, Pauses, Talk
from rota.client.jobs import encode_job, new_key
from rota.client.problems import error_of, make_error
from rota.errors import ServerUnavailable, SubmitError

_LINES = 2_000
_BYTES = 3_500_000  # less than the server takes for one transaction
_PASSING = frozenset({"quota", "too-many-requests", "unavailable"})
_MOST_TRIES = 20

OnError: TypeAlias = Literal["raise", "continue", "stop"]


class JobsRefused(SubmitError):
    """Some of many jobs were refused: `summary` says which. The others are stored."""

    def __init__(self, summary: wire.ManySubmitted) -> None:
        self.summary = summary
        first = summary.errors[0]
        super().__init__(
            f"{len(summary.errors):,} of {len(summary.ids):,} jobs were refused; the first is number "
            f"{first.line}: {first.detail}"
        )


class _Line(msgspec.Struct):
    """One line of the answer: about a job, or about the whole."""

    line: int = 0
    id: UUID | None = None
    existed: bool = False
    code: str = ""
    detail: str = ""
    stopped: wire.LineRefused | None = None
    summary: dict[str, Any] | None = None


def submit_many(
    jobs: Iterable[wire.NewJobDict], *, on_error: OnError = "raise"
) -> Talk[wire.ManySubmitted]:
    """Store many jobs, each a dict of what `submit` takes. In transactions of up to 2,000.

    A job that can't be stored is refused alone. `on_error` says what then: "raise" stores all the others
    and raises `JobsRefused` at the end; "continue" only tells of it in the summary; "stop" stores what
    is before it, nothing after it, and raises.
    """
    done = wire.ManySubmitted()
    stop = on_error == "stop"
    for chunk in _chunks(jobs):
        yield from _send(chunk, done, stop)
        if stop and done.errors:
            break
    if done.errors and on_error != "continue":
        raise JobsRefused(done)
    return done


def _chunks(jobs: Iterable[Mapping[str, Any]]) -> Iterator[list[tuple[bytes, bool]]]:
    """Lines, with whether their key is the caller's own."""
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


def _send(chunk: list[tuple[bytes, bool]], done: wire.ManySubmitted, stop: bool) -> Talk[None]:
    ask = Ask(
        method="POST", path="/v1/jobs:bulk", body=b"\n".join(line for line, _ in chunk),
        query={"answer": "lines", "on_error": "stop" if stop else "continue"},
        headers={"Content-Type": "application/x-ndjson"}, repeatable=True,
    )  # fmt: skip
    pauses = Pauses()
    for tries_left in reversed(range(_MOST_TRIES)):
        answer = yield ask
        assert answer is not None
        if not answer.is_good:
            raise error_of(answer)
        lines = [msgspec.json.decode(line, type=_Line) for line in answer.body.splitlines()]
        if not lines or lines[-1].summary is None:
            raise ServerUnavailable("the answer is cut short", in_doubt=True)
        stopped = next((line.stopped for line in lines if line.stopped is not None), None)
        if stopped is None:
            _count(chunk, lines[:-1], done)
            told = lines[-1].summary.get("warnings", [])
            done.warnings += [each for each in told if each not in done.warnings]
            return
        if stopped.code not in _PASSING or not tries_left:
            raise make_error(stopped.code, stopped.detail, 429 if stopped.code == "quota" else 0)
        yield Pause(1.0 + pauses.next())


def _count(chunk: list[tuple[bytes, bool]], lines: list[_Line], done: wire.ManySubmitted) -> None:
    before = len(done.ids)
    ids: list[UUID | None] = [None] * len(lines)
    for line in lines:
        ids[line.line - 1] = line.id
        if line.id is None:
            done.errors.append(wire.LineRefused(before + line.line, line.code, line.detail))
        elif line.existed and chunk[line.line - 1][1]:
            done.existed += 1
        else:
            done.stored += 1  # also by an earlier try of ours
    done.ids += ids
