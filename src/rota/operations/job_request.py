"""Jobs as requests describe them, and the one place where options and defaults become a `NewJob`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Any
from uuid import UUID

import msgspec
from msgspec import Meta

from rota.config import check_name, check_open_task
from rota.core.payloads import Limits, check_payload, encode_payload
from rota.core.resources import demands
from rota.core.unique import ThrottleKeep, Unique, UniqueConflict, UniqueScope
from rota.core.years import year_problem
from rota.errors import InvalidArguments
from rota.model import Guarantee, GuaranteeName
from rota.store.rows import NewJob
from rota.submission import HEADER_LIMITS
from rota.task import HEARTBEAT_TIMEOUT, SubmitOptions, Task, check_demands

NAME_PATTERN = "^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,99}$"
Name = Annotated[str, Meta(pattern=NAME_PATTERN)]
Text = Annotated[str, Meta(min_length=1, max_length=255)]
Moment = Annotated[datetime, Meta(tz=True)]

_Delay = Annotated[float, Meta(ge=0, le=3_155_760_000, description="Seconds from now.")]
_Priority = Annotated[int, Meta(ge=-1000, le=1000, description="A point is worth a minute.")]
_HeartbeatTimeout = Annotated[
    float, Meta(ge=0.001, lt=1e9, description="Seconds without a sign of life.")
]
_Key = Annotated[str, Meta(min_length=1, max_length=255, description="As Idempotency-Key.")]

Resources = Annotated[
    dict[str, float | str],
    Meta(max_length=8, description="memory in bytes or as 2GB; cpu, gpu and others as numbers."),
]
Near = Annotated[str, Meta(pattern="^$|" + NAME_PATTERN)]
NearPatience = Annotated[float, Meta(ge=0, le=86_400, description="Seconds.")]
_LimitKey = Annotated[str, Meta(min_length=1, max_length=255)]

_Seconds = Annotated[float, Meta(ge=0.001, le=3_155_760_000, description="Seconds.")]
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
    delay: _Delay | None = None
    queue: Name | None = None
    needs: Annotated[list[Name], Meta(max_length=20)] | None = None
    priority: _Priority | None = None
    guarantee: GuaranteeName | None = None
    max_attempts: Annotated[int, Meta(ge=1, le=32_000)] | None = None
    retries: Annotated[int, Meta(ge=0, le=31_999)] | None = None
    timeout: Annotated[float, Meta(gt=0, lt=1e9, description="Seconds.")] | None = None
    heartbeat_timeout: _HeartbeatTimeout | None = None
    key: _Key | None = None
    tags: Annotated[list[Name], Meta(max_length=50)] = []
    headers: dict[str, Any] | None = None
    concurrency_key: _LimitKey | None = None
    fairness_key: _LimitKey | None = None
    order_key: _LimitKey | None = None
    unique: UniqueScope | _Seconds | None = None
    unique_key: _LimitKey | None = None
    unique_conflict: UniqueConflict | None = None
    debounce: _Seconds | None = None
    debounce_max: _Seconds | None = None
    throttle: _Seconds | None = None
    throttle_keep: ThrottleKeep | None = None
    resources: Resources | None = None
    near: Near | None = None
    near_patience: NearPatience | None = None

    @property
    def name(self) -> str:
        """The name of the task, under either of its two words."""
        name: str | None = _one_of("task", self.task, "job_type", self.job_type)
        if name is None:
            raise InvalidArguments(
                "task: name the task to run (`task`, or `job_type`)", field="task"
            )
        return name

    def to_new_job(
        self, id: UUID, namespace: str, tasks: Mapping[str, Task[..., Any]], limits: Limits,
        *, one_queue: bool = False,
    ) -> NewJob:  # fmt: skip
        """Check the request. `tasks`: those whose arguments are known in this process. `one_queue`: a
        unique job that waits in another queue than this one's must not be changed by it."""
        name = self.name
        check_open_task(known_name(name))
        payload = _checked_payload(self.payload, name, limits)
        self.at = _one_of("at", self.at, "schedule_time", self.schedule_time)
        retried = None if self.retries is None else self.retries + 1
        self.max_attempts = _one_of("max_attempts", self.max_attempts, "retries", retried)
        self._check_rest()
        if (task := tasks.get(name)) is not None:
            task.arguments.check(payload)
        guarantee = None if self.guarantee is None else int(Guarantee.parse(self.guarantee))
        if task is not None:
            check_guarantee(name, guarantee, task.options_.guarantee)
        job = build_job(id, namespace, name, self.payload, self, task)
        if task is not None:
            give_keys(job, task)
        if guarantee is not None:
            job.guarantee = guarantee
        if one_queue and job.unique is not None:
            job.unique = msgspec.structs.replace(job.unique, queue=job.queue)
        return job

    def _check_rest(self) -> None:
        if self.at is not None:
            if self.delay is not None:
                raise InvalidArguments("delay: give it or a moment (at, schedule_time), not both")
            if (problem := year_problem("at", self.at)) is not None:
                raise InvalidArguments(problem)
        if self.queue is not None:
            known_name(self.queue)
        for field in ("key", "concurrency_key", "fairness_key", "order_key", "unique_key"):
            if "\0" in (getattr(self, field) or ""):
                raise InvalidArguments(f"{field}: holds a NUL character, which can't be stored")
        for name in (*(self.needs or ()), *self.tags):
            known_name(name)
        check_demands(self)
        if HEARTBEAT_TIMEOUT in (self.headers or {}):
            raise InvalidArguments("headers: heartbeat_timeout is a field of its own")


def build_job(
    id: UUID, namespace: str, name: str, payload: msgspec.Raw, options: JobRequest | SubmitOptions,
    task: Task[..., Any] | None,
) -> NewJob:  # fmt: skip
    """Make the job from what a submit says and, where it says nothing, from its task's defaults. The
    defaults of a task whose code isn't in this process are filled in by the database."""
    needs = options.needs
    job = NewJob(
        id=id, namespace=namespace, task=name, payload=payload, queue=options.queue,
        needs=demands(
            needs, options.resources, options.near, options.near_patience,
            None if task is None else task.options_.demands,
        ), priority=options.priority,
        max_attempts=options.max_attempts, timeout=options.timeout, at=options.at,
        delay=options.delay, key=options.key, concurrency_key=options.concurrency_key,
        fairness_key=options.fairness_key, order_key=options.order_key,
        unique=_unique_of(options, task),
    )  # fmt: skip
    if task is not None:
        own = task.options_
        job.guarantee = int(own.guarantee)
        if job.queue is None:
            job.queue = own.queue
        if job.priority is None:
            job.priority = own.priority
        if job.max_attempts is None:
            job.max_attempts = own.retry.max_attempts
        if job.timeout is None:
            job.timeout = own.timeout
    added: dict[str, Any] = {"tags": list(options.tags)} if options.tags else {}
    if options.heartbeat_timeout is not None:
        added[HEARTBEAT_TIMEOUT] = options.heartbeat_timeout
    if headers := {**(options.headers or {}), **added}:
        job.headers = msgspec.Raw(encode_payload(headers, HEADER_LIMITS, name, "headers field"))
    return job


def _unique_of(options: JobRequest | SubmitOptions, task: Task[..., Any] | None) -> Unique | None:
    """Return how the job is to be unique: as its submit says, or else as its task declares."""
    unique = Unique.parse(options)
    if unique is None and task is not None:
        unique = task.unique
    if unique is None:
        if options.unique_key is not None:
            raise InvalidArguments(
                "unique_key: needs unique, debounce or throttle", field="unique_key"
            )
        return None
    if unique.sets_time and (options.at is not None or options.delay is not None):
        raise InvalidArguments(
            f"{unique.per}: sets the time of the job: leave at and delay out", field=unique.per
        )
    if unique.is_punctual and options.order_key is not None:
        raise InvalidArguments(
            "order_key: can't be given with debounce, nor with throttle_keep last, which change the "
            "order",
            field="order_key",
        )
    if options.unique_key is not None:
        unique = msgspec.structs.replace(unique, key=options.unique_key)
    return unique


def give_keys(job: NewJob, task: Task[..., Any]) -> None:
    """Give a job the keys that its task declares, where its submit names none."""
    own = task.options_
    if job.concurrency_key is None and own.concurrency_key is not None:
        job.concurrency_key = task.declared_key("concurrency_key", bytes(job.payload))
    if job.fairness_key is None and own.fairness_key is not None:
        job.fairness_key = task.declared_key("fairness_key", bytes(job.payload))
    if job.order_key is None and own.order_key is not None:
        job.order_key = task.declared_key("order_key", bytes(job.payload))
    if job.order_key is not None and own.order_failure != "continue":
        job.order_failure = own.order_failure
    if job.unique is not None and job.unique.key is None and own.unique_key is not None:
        key = task.declared_unique_key(bytes(job.payload))
        job.unique = msgspec.structs.replace(job.unique, key=key)


def check_guarantee(task: str, asked: int | None, declared: int | None) -> None:
    """Refuse a guarantee other than the one that the task declares, for which it is written."""
    if asked is not None and declared is not None and asked != declared:
        label = Guarantee(declared).label
        raise InvalidArguments(
            f"guarantee: task {task!r} is declared {label}, which a submit can't change; leave it out"
        )


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
    """Check a name once: the same few names come again and again."""
    return check_name("name", name)


def _one_of(name: str, value: Any, other_name: str, other: Any) -> Any:
    """Return the value of two words for one thing: either, or both if they agree."""
    if value is None or other is None or value == other:
        return other if value is None else value
    raise InvalidArguments(f"{other_name}: says {other}, but {name} says {value}; give one of them")
