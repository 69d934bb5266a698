"""What a submit says, checked and turned into a `NewJob`. Pure: no I/O, no framework.

The checks are as strict as rota.check_job() in the database, which a stream of jobs bypasses.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Any
from uuid import UUID

import msgspec
from msgspec import Meta

from rota.config import check_name, check_open_task
from rota.core.arguments import Limits, check_payload
from rota.errors import InvalidArguments
from rota.model import Guarantee, GuaranteeName
from rota.store.rows import NewJob
from rota.task import Task

NAME_PATTERN = "^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,99}$"
Name = Annotated[str, Meta(pattern=NAME_PATTERN)]
Text = Annotated[str, Meta(min_length=1, max_length=255)]
Moment = Annotated[datetime, Meta(tz=True)]

_HEADER_LIMITS = Limits(16_384, 64)
_YEARS = range(1970, 9999)
_EMPTY = msgspec.Raw(b"{}")


class JobRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A job to be submitted. `job_type`, `schedule_time` and `retries` are other words for `task`,
    `at` and `max_attempts - 1`. What is left out gets the task's defaults."""

    task: Name | None = None
    job_type: Name | None = None
    payload: Annotated[
        msgspec.Raw,
        Meta(description="The arguments by name.", extra_json_schema={"type": "object"}),
    ] = msgspec.field(default_factory=lambda: _EMPTY)
    at: Moment | None = None
    schedule_time: Moment | None = None
    delay: (
        Annotated[float, Meta(ge=0, le=3_155_760_000, description="Seconds from now.")] | None
    ) = None
    queue: Name | None = None
    needs: Annotated[list[Name], Meta(max_length=20)] | None = None
    priority: (
        Annotated[int, Meta(ge=-1000, le=1000, description="A point is worth a minute.")] | None
    ) = None
    guarantee: GuaranteeName | None = None
    max_attempts: Annotated[int, Meta(ge=1, le=32_000)] | None = None
    retries: Annotated[int, Meta(ge=0, le=31_999)] | None = None
    timeout: Annotated[float, Meta(gt=0, lt=1e9, description="Seconds.")] | None = None
    heartbeat_timeout: (
        Annotated[float, Meta(ge=0.001, lt=1e9, description="Seconds without a sign of life.")]
        | None
    ) = None
    key: (
        Annotated[str, Meta(min_length=1, max_length=255, description="As Idempotency-Key.")] | None
    ) = None
    tags: Annotated[list[Name], Meta(max_length=50)] = []
    headers: dict[str, Any] | None = None


def to_new_job(
    said: JobRequest, id: UUID, namespace: str, tasks: Mapping[str, Task[..., Any]], limits: Limits
) -> NewJob:
    """`tasks`: those whose arguments are known here. Others are taken as they are."""
    name = _one_of("task", said.task, "job_type", said.job_type)
    if name is None:
        raise InvalidArguments("task: say which task is to run (`task`, or `job_type`)")
    check_open_task(known_name(name))
    payload = _checked_payload(said.payload, name, limits)
    at = _one_of("at", said.at, "schedule_time", said.schedule_time)
    retried = None if said.retries is None else said.retries + 1
    job = NewJob(
        id=id,
        namespace=namespace,
        task=name,
        payload=said.payload,
        queue=said.queue,
        needs=None if said.needs is None else tuple(said.needs),
        priority=said.priority,
        guarantee=None if said.guarantee is None else int(Guarantee.parse(said.guarantee)),
        max_attempts=_one_of("max_attempts", said.max_attempts, "retries", retried),
        timeout=said.timeout,
        at=at,
        delay=said.delay,
        key=said.key,
    )
    _check_rest(said, job)
    if (task := tasks.get(name)) is not None:
        task.arguments.decode(payload)
        check_guarantee(name, job.guarantee, task.options_.guarantee)
        _fill_in(job, task)
    return job


def check_guarantee(task: str, asked: int | None, declared: int | None) -> None:
    """A task is written for the guarantee that it declares: who submits can't choose another."""
    if asked is not None and declared is not None and asked != declared:
        label = Guarantee(declared).label
        raise InvalidArguments(
            f"guarantee: task {task!r} is declared {label}, which a submit can't change; leave it out"
        )


def _check_rest(said: JobRequest, job: NewJob) -> None:
    if job.at is not None:
        if job.delay is not None:
            raise InvalidArguments("delay: give it or a moment (at, schedule_time), not both")
        if job.at.year not in _YEARS:
            raise InvalidArguments(f"at: the year {job.at.year} is not in 1970 to 9998")
    if job.queue is not None:
        known_name(job.queue)
    if "\0" in (job.key or ""):
        raise InvalidArguments("key: holds a NUL character, which can't be stored")
    for name in (*(job.needs or ()), *said.tags):
        known_name(name)
    if "heartbeat_timeout" in (said.headers or {}):
        raise InvalidArguments("headers: heartbeat_timeout is a field of its own")
    own: dict[str, Any] = {"tags": said.tags} if said.tags else {}
    if said.heartbeat_timeout is not None:
        own["heartbeat_timeout"] = said.heartbeat_timeout
    if said.headers is not None or own:
        every = {**(said.headers or {}), **own}
        encoded = msgspec.json.encode(every)
        check_payload(encoded, _HEADER_LIMITS, job.task, "headers")
        job.headers = msgspec.Raw(encoded)


def _fill_in(job: NewJob, task: Task[..., Any]) -> None:
    """What the code says of a task that perhaps no node has registered yet."""
    own = task.options_
    defaults: dict[str, Any] = {
        "queue": own.queue, "needs": own.needs, "priority": own.priority,
        "guarantee": int(own.guarantee), "max_attempts": own.retry.max_attempts,
        "timeout": own.timeout,
    }  # fmt: skip
    for field, value in defaults.items():
        if getattr(job, field) is None:
            setattr(job, field, value)


def _checked_payload(payload: msgspec.Raw, task: str, limits: Limits) -> bytes:
    raw = bytes(payload)
    if not raw.startswith(b"{"):
        raise InvalidArguments("payload: must be a JSON object, argument names and values")
    check_payload(raw, limits, task)
    try:
        # It is stored as it is; but what is no JSON (half a surrogate, 1e999) must not get there.
        msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidArguments(f"payload: {error}") from None
    return raw


@lru_cache(4096)
def known_name(name: str) -> str:
    """Checked once: the same few names come again and again."""
    return check_name("name", name)


def _one_of(name: str, value: Any, other_name: str, other: Any) -> Any:
    """Two words for one thing: either, or both if they agree."""
    if value is None or other is None or value == other:
        return other if value is None else value
    raise InvalidArguments(f"{other_name}: says {other}, but {name} says {value}; give one of them")
