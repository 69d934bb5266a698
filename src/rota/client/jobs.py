"""What is said about jobs. `client.jobs` has these verbs; with `AsyncClient` they are awaited."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Unpack
from uuid import UUID

import msgspec

from rota.client import wire
from rota.client.asking import Ask, Page, Pause, Talk, get, post, read
from rota.client.following import Follow
from rota.client.listing import Pages
from rota.core.explain import Explanation
from rota.errors import InvalidArguments, NotFound
from rota.lib.ids import new_id
from rota.model import Accepted, Cancelled, Discarded, GuaranteeName, Job, ManyChanged
from rota.store.logs import LogLine
from rota.store.search import Count, JobSummary

_FIRST_LOOK = 0.05
_LONGEST_LOOK = 2.0

Id = UUID | str


def submit(
    task: str, payload: Mapping[str, Any] | None = None, *,
    at: datetime | None = None, delay: float | timedelta | None = None, queue: str | None = None,
    needs: Sequence[str] | None = None, priority: int | None = None,
    guarantee: GuaranteeName | None = None, max_attempts: int | None = None,
    timeout: float | None = None, heartbeat_timeout: float | None = None, key: str | None = None,
    tags: Sequence[str] = (), headers: Mapping[str, Any] | None = None,
) -> Talk[Accepted]:  # fmt: skip
    """Store a job. It is committed when this returns.

    Without a `key` the client makes one, so that it can ask again when an answer is lost and still store
    one job. With a key of your own (an order's number, say) that also holds across restarts of yours.
    """
    job = encode_job(
        {
            "task": task, "payload": payload, "at": at, "delay": delay, "queue": queue,
            "needs": needs, "priority": priority, "guarantee": guarantee,
            "max_attempts": max_attempts, "timeout": timeout,
            "heartbeat_timeout": heartbeat_timeout, "tags": tags, "headers": headers,
            "key": key or new_key(),
        }
    )  # fmt: skip
    answer = yield Ask(method="POST", path="/v1/jobs", body=job, repeatable=True)
    accepted = read(answer, Accepted)
    existed = answer is not None and answer.headers.get("idempotent-replayed") == "true"
    if existed and key is None:
        existed = False  # our own first try of it
    return msgspec.structs.replace(accepted, existed=existed)


def new_key() -> str:
    return f"auto-{new_id()}"


def encode_job(said: Mapping[str, Any]) -> bytes:
    """As the server wants it, without what wasn't said."""
    unknown = sorted(set(said) - _KNOWN)
    if unknown:
        raise InvalidArguments(f"unknown option {unknown[0]!r}; known: {', '.join(sorted(_KNOWN))}")
    job = {name: value for name, value in said.items() if value is not None}
    if isinstance(delay := job.get("delay"), timedelta):
        job["delay"] = delay.total_seconds()
    for several in ("needs", "tags"):
        if isinstance(named := job.get(several), str):
            job[several] = [named]
    try:
        return msgspec.json.encode(job)
    except (TypeError, ValueError, RecursionError, UnicodeEncodeError) as error:
        raise InvalidArguments(
            f"task {job.get('task')!r}: can't be sent as JSON: {error}"
        ) from None


_KNOWN = frozenset(wire.NewJobDict.__annotations__)


def fetch(id: Id) -> Talk[Job]:
    """The job as it is now, with everything that is known of it."""
    return get(f"/v1/jobs/{_id(id)}", Job)


def listing(
    *, limit: int | None = None, page_size: int = 100, **wanted: Unpack[wire.JobFilterDict]
) -> Pages[JobSummary]:
    """The jobs that match, the newest first; page after page as you go on. `limit`: so many at most."""
    return Pages("/v1/jobs", Page[JobSummary], _filter(wanted), limit, page_size)


def count(**wanted: Unpack[wire.JobFilterDict]) -> Talk[Count]:
    """How many match. `exact` is false when it is an estimate."""
    page = yield from get(
        "/v1/jobs", wire.JobPage, **{**_filter(wanted), "limit": 1, "count": "true"}
    )
    assert page.count is not None
    return page.count


def result(id: Id, *, wait: float | None = None) -> Talk[wire.JobResult]:
    """What came of the job. With `wait`, asks until it has ended, but not for longer than that."""
    end = time.monotonic() + (wait or 0.0)
    pause = _FIRST_LOOK
    while True:
        found = yield from get(f"/v1/jobs/{_id(id)}/result", wire.JobResult)
        left = end - time.monotonic()
        if found.ended or left <= 0:
            return found
        yield Pause(min(pause, left))
        pause = min(pause * 1.5, _LONGEST_LOOK)


def wait(id: Id, timeout: float | None = None) -> Talk[Job]:
    """The job once it has ended, however it did; `TimeoutError` if that takes longer than `timeout`."""
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        left = 3600.0 if end is None else max(end - time.monotonic(), 0.0)
        if (yield from result(id, wait=left)).ended:
            return (yield from fetch(id))
        if end is not None and time.monotonic() >= end:
            raise TimeoutError(f"job {id} has not ended within {timeout:g} s")


def attempts(id: Id) -> Talk[wire.Attempts]:
    """Its attempts that failed, were lost or were interrupted."""
    return get(f"/v1/jobs/{_id(id)}/attempts", wire.Attempts)


def explain(id: Id) -> Talk[Explanation]:
    """Why the job isn't running now, or what it does."""
    return get(f"/v1/jobs/{_id(id)}/explain", Explanation)


def logs(
    id: Id, *, attempt: int | None = None, follow: bool = False
) -> Pages[LogLine] | Follow[LogLine]:
    """What the job printed and logged; with `follow`, as it comes and until the job has ended."""
    path, query = f"/v1/jobs/{_id(id)}/logs", {"attempt": attempt}
    if follow:
        return Follow(f"{path}/stream", query, LogLine, until="end")
    return Pages(path, Page[LogLine], query, None, 500)


def cancel(id: Id) -> Talk[Cancelled]:
    """Cancel a job, or ask it to stop if it runs. Raises `Conflict` if it has ended."""
    return post(f"/v1/jobs/{_id(id)}/cancel", Cancelled, repeatable=True)


def retry(id: Id) -> Talk[Accepted]:
    """Run a failed job again, or one that waits for its next retry now. Not repeated when an answer
    is lost: by then it may have failed once more."""
    return post(f"/v1/jobs/{_id(id)}/retry", Accepted)


def discard(id: Id) -> Talk[Discarded]:
    """Take a failed job off the dead-letter list for good."""
    return post(f"/v1/jobs/{_id(id)}/discard", Discarded, repeatable=True)


def cancel_many(
    *, dry_run: bool = False, limit: int = 10_000, **wanted: Unpack[wire.JobFilterDict]
) -> Talk[ManyChanged]:
    """Cancel all jobs that match; at least one filter has to be given."""
    body = {**_filter(wanted), "dry_run": dry_run, "limit": limit}
    return post("/v1/jobs:cancel", ManyChanged, body, repeatable=dry_run)


def retry_many(
    *, dry_run: bool = False, limit: int = 10_000, **wanted: Unpack[wire.JobFilterDict]
) -> Talk[ManyChanged]:
    """Retry all failed jobs that match; at least one filter has to be given."""
    body = {**_filter(wanted), "dry_run": dry_run, "limit": limit}
    return post("/v1/jobs:retry", ManyChanged, body, repeatable=dry_run)


def _filter(wanted: wire.JobFilterDict) -> dict[str, Any]:
    said: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
    unknown = sorted(set(said) - set(wire.JobFilterDict.__annotations__))
    if unknown:
        raise InvalidArguments(f"unknown filter {unknown[0]!r}")
    if isinstance(state := said.get("state"), str):
        said["state"] = [state]
    return said


def _id(id: Id) -> UUID:
    try:
        return id if isinstance(id, UUID) else UUID(id)
    except ValueError:
        raise NotFound(f"{id!r} is not a job's id, which is a UUID") from None
