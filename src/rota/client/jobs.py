"""`client.jobs`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Unpack
from uuid import UUID

import msgspec

from rota.client import bulk, wire
from rota.client.connections import C, Resource, call, iteration
from rota.client.exchanges import Exchange, Page, Pages, Sleep, decode, fetch, send
from rota.client.streams import Stream
from rota.client.transport import Request
from rota.core.explain import Explanation
from rota.core.unique import ThrottleKeep, UniqueConflict, UniqueScope
from rota.errors import InvalidArguments, NotFound, QueueFull
from rota.lib.patience import Patience
from rota.model import (
    Accepted,
    Cancelled,
    Count,
    Discarded,
    GuaranteeName,
    Job,
    JobSummary,
    LogLine,
    ManyChanged,
)

_FIRST_POLL = 0.05
_LONGEST_POLL = 2.0

Id = UUID | str


class Jobs(Resource[C]):
    """`client.jobs`"""

    @call
    def submit(
        self, task: str, payload: Mapping[str, Any] | None = None, *,
        at: datetime | None = None, delay: float | timedelta | None = None,
        queue: str | None = None, needs: Sequence[str] | None = None, priority: int | None = None,
        guarantee: GuaranteeName | None = None, max_attempts: int | None = None,
        timeout: float | None = None, heartbeat_timeout: float | None = None,
        key: str | None = None, tags: Sequence[str] = (), headers: Mapping[str, Any] | None = None,
        unique: UniqueScope | float | timedelta | None = None, unique_key: str | None = None,
        unique_conflict: UniqueConflict | None = None, debounce: float | timedelta | None = None,
        debounce_max: float | timedelta | None = None, throttle: float | timedelta | None = None,
        throttle_keep: ThrottleKeep | None = None, block: bool = False,
        block_timeout: float | None = None, resources: Mapping[str, float | str] | None = None,
        near: str | None = None, near_patience: float | None = None,
    ) -> Exchange[Accepted]:  # fmt: skip
        """Store a job. It is committed when this returns.

        Without a `key` the client makes one, so that a request whose response is lost can be repeated
        and still stores one job. A key of your own (such as an order's number) also holds across
        restarts of your program.

        If the queue is full, `QueueFull` is raised at once; with `block` the client waits until there is
        room, for `block_timeout` seconds at most.
        """
        job = bulk.encode_job(
            {
                "task": task, "payload": payload, "at": at, "delay": delay, "queue": queue,
                "needs": needs, "priority": priority, "guarantee": guarantee,
                "max_attempts": max_attempts, "timeout": timeout,
                "heartbeat_timeout": heartbeat_timeout, "tags": tags, "headers": headers,
                "key": bulk.new_key() if key is None else key,
                "unique": unique, "unique_key": unique_key,
                "unique_conflict": unique_conflict, "debounce": debounce,
                "debounce_max": debounce_max, "throttle": throttle, "throttle_keep": throttle_keep,
                "resources": resources, "near": near, "near_patience": near_patience,
            }
        )  # fmt: skip
        patience = Patience(block_timeout) if block else None
        while True:
            response = yield Request(method="POST", path="/v1/jobs", body=job, repeatable=True)
            try:
                accepted = decode(response, Accepted)
                break
            except QueueFull as error:
                wait = patience.pause(error.retry_after) if patience else None
                if wait is None:
                    raise
            yield Sleep(wait)
        assert response is not None
        # With a key of the client's own, the existing job is that of its first attempt.
        replayed = key is not None and response.headers.get("idempotent-replayed") == "true"
        existed = accepted.duplicate or replayed
        return msgspec.structs.replace(accepted, existed=existed)

    @call
    def submit_many(
        self, jobs: Iterable[wire.NewJobDict], *, on_error: bulk.OnError = "raise",
        block: bool = False, block_timeout: float | None = None,
    ) -> Exchange[wire.ManySubmitted]:  # fmt: skip
        """Store many jobs, each a dict of the arguments of `submit`, in transactions of up to 2,000.

        A job that can't be stored is refused alone. With `on_error` "raise" all the others are stored,
        and then `JobsRefused` is raised; with "continue" the summary lists the refused jobs; with "stop"
        only the jobs before it are stored, and `JobsRefused` is raised.

        If a queue is full, `QueueFull` is raised, with the transactions before it stored; with `block`
        the client waits until there is room, for `block_timeout` seconds in all.
        """
        return bulk.submit_many(jobs, on_error, Patience(block_timeout) if block else None)

    @call
    def get(self, id: Id) -> Exchange[Job]:
        """Return a job."""
        return fetch(_path(id), Job)

    @iteration
    def list(
        self, *, limit: int | None = None, page_size: int = 100,
        **filters: Unpack[wire.JobFilterDict],
    ) -> Pages[JobSummary]:  # fmt: skip
        """List the jobs that match, newest first. Pages are fetched as the iteration reaches them."""
        return Pages("/v1/jobs", Page[JobSummary], _checked(filters), limit, page_size)

    @iteration
    def list_whole(
        self, *, state: str | None = None, task: str | None = None, queue: str | None = None,
        tag: str | None = None, outcome: str | None = None, before: UUID | None = None,
        limit: int | None = None, page_size: int = 100,
    ) -> Pages[Job]:  # fmt: skip
        """List jobs with their payloads, results and attempts, newest first."""
        query = {"state": state, "task": task, "queue": queue, "tag": tag, "outcome": outcome,
                 "before": before}  # fmt: skip
        return Pages("/v1/jobs:whole", Page[Job], query, limit, page_size)

    @iteration
    def ended(
        self, since: datetime, until: datetime, *, state: str | None = None,
        task: str | None = None, queue: str | None = None, limit: int | None = None,
        page_size: int = 100, after: UUID | None = None,
    ) -> Pages[Job]:  # fmt: skip
        """List all jobs that ended from `since` to before `until`, in the order of their submits.

        `after`: begin behind the job of this id."""
        query = {
            "since": since, "until": until, "state": state, "task": task, "queue": queue, "after": after
        }  # fmt: skip
        return Pages("/v1/history", Page[Job], query, limit, page_size)

    @call
    def count(self, **filters: Unpack[wire.JobFilterDict]) -> Exchange[Count]:
        """Count the jobs that match. `exact` is false for an estimate."""
        query = {**_checked(filters), "limit": 1, "count": "true"}
        page = yield from fetch("/v1/jobs", wire.JobPage, **query)
        assert page.count is not None
        return page.count

    @call
    def result(self, id: Id, *, wait: float | None = None) -> Exchange[wire.JobResult]:
        """Return the result of a job. With `wait`, wait up to so many seconds for the job to end."""
        return _result(id, wait or 0.0)

    @call
    def wait(self, id: Id, timeout: float | None = None) -> Exchange[Job]:
        """Wait until a job has ended, and return it; `TimeoutError` after `timeout` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = 3600.0 if end is None else max(end - time.monotonic(), 0.0)
            if (yield from _result(id, left)).ended:
                return (yield from fetch(_path(id), Job))
            if end is not None and time.monotonic() >= end:
                raise TimeoutError(f"job {id} has not ended within {timeout:g} s")

    @call
    def attempts(self, id: Id) -> Exchange[wire.Attempts]:
        """Return the attempts of a job that failed, were lost or were interrupted."""
        return fetch(_path(id, "/attempts"), wire.Attempts)

    @call
    def explain(self, id: Id) -> Exchange[Explanation]:
        """Explain why a job isn't running now, or what it is doing."""
        return fetch(_path(id, "/explain"), Explanation)

    @iteration
    def logs(
        self, id: Id, *, attempt: int | None = None, follow: bool = False
    ) -> Pages[LogLine] | Stream[LogLine]:
        """List what a job printed and logged; with `follow`, as it is written, until the job ends."""
        path, query = _path(id, "/logs"), {"attempt": attempt}
        if follow:
            return Stream(f"{path}/stream", query, LogLine, until="end")
        return Pages(path, Page[LogLine], query, None, 500)

    @call
    def cancel(self, id: Id) -> Exchange[Cancelled]:
        """Cancel a job, or ask it to stop if it runs. Raises `Conflict` if it has ended."""
        return send("POST", _path(id, "/cancel"), Cancelled, repeatable=True)

    @call
    def retry(self, id: Id) -> Exchange[Accepted]:
        """Run a failed job again, or one that waits for its next retry now. The request is not repeated
        when a response is lost: by then the job may have failed once more."""
        return send("POST", _path(id, "/retry"), Accepted)

    @call
    def discard(self, id: Id) -> Exchange[Discarded]:
        """Remove a failed job from the dead letters for good."""
        return send("POST", _path(id, "/discard"), Discarded, repeatable=True)

    @call
    def cancel_many(
        self, *, dry_run: bool = False, limit: int = 10_000, **filters: Unpack[wire.JobFilterDict]
    ) -> Exchange[ManyChanged]:
        """Cancel all jobs that match. At least one filter is required."""
        body = {**_checked(filters), "dry_run": dry_run, "limit": limit}
        return send("POST", "/v1/jobs:cancel", ManyChanged, body, repeatable=dry_run)

    @call
    def retry_many(
        self, *, dry_run: bool = False, limit: int = 10_000, **filters: Unpack[wire.JobFilterDict]
    ) -> Exchange[ManyChanged]:
        """Retry all failed jobs that match. At least one filter is required."""
        body = {**_checked(filters), "dry_run": dry_run, "limit": limit}
        return send("POST", "/v1/jobs:retry", ManyChanged, body, repeatable=dry_run)


def _result(id: Id, wait: float) -> Exchange[wire.JobResult]:
    end = time.monotonic() + wait
    pause = _FIRST_POLL
    while True:
        found = yield from fetch(_path(id, "/result"), wire.JobResult)
        left = end - time.monotonic()
        if found.ended or left <= 0:
            return found
        yield Sleep(min(pause, left))
        pause = min(pause * 1.5, _LONGEST_POLL)


def _checked(filters: wire.JobFilterDict) -> dict[str, Any]:
    given: dict[str, Any] = {name: value for name, value in filters.items() if value is not None}
    if unknown := sorted(set(given) - set(wire.JobFilterDict.__annotations__)):
        raise InvalidArguments(f"unknown filter {unknown[0]!r}")
    if isinstance(state := given.get("state"), str):
        given["state"] = [state]
    return given


def _path(id: Id, rest: str = "") -> str:
    try:
        return f"/v1/jobs/{id if isinstance(id, UUID) else UUID(id)}{rest}"
    except ValueError:
        raise NotFound(f"{id!r} is not a job's id, which is a UUID") from None
