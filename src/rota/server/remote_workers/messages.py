"""The requests and answers of remote workers: workers that use the HTTP API."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from rota.config import OWN_PREFIX
from rota.core.resources import demands, parse_node, to_json
from rota.core.signature import Argument, Signature
from rota.errors import InvalidArguments
from rota.model import (
    RESULT_DROPPED,
    Failure,
    Guarantee,
    GuaranteeName,
    Outcome,
    OutcomeKind,
    Retry,
)
from rota.operations.job_request import Name, NearPatience, Resources, known_name
from rota.runtime.attempts import must_mark
from rota.runtime.work import Work
from rota.store.remote import JobToken, NewWorker, RemoteTask
from rota.worker.runners.results import (
    MESSAGE_LIMIT,
    NAME_LIMIT,
    TRACEBACK_LIMIT,
    encode_result,
    result_dropped,
)

Seconds = Annotated[float, Meta(ge=0, le=3_155_760_000)]
Label = Annotated[str, Meta(min_length=1, max_length=200)]
Token = Annotated[int, Meta(ge=0, le=2**63 - 1)]
JsonType = Literal["null", "boolean", "integer", "number", "string", "array", "object"]
OutcomeName = Literal["succeeded", "failed", "retry_after", "cancelled", "released"]
Answer = Literal["accepted", "stale"]


class RetryRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The pause before attempt n + 1 is `base * factor ** (n - 1)` seconds, at most `cap`."""

    max_attempts: Annotated[int, Meta(ge=1, le=32_000)] = 5
    base: Seconds = 2.0
    factor: Annotated[float, Meta(ge=1, le=1000)] = 2.0
    cap: Seconds = 3600.0
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.2


class TaskRetryRequest(RetryRequest, forbid_unknown_fields=True, kw_only=True):
    """The errors that are retried (`only_on`; default: all) and those that are not (`never_on`)."""

    only_on: Annotated[list[Label], Meta(max_length=100, description="Names of errors.")] = []
    never_on: Annotated[list[Label], Meta(max_length=100)] = []

    def to_retry(self) -> Retry:
        fields = msgspec.structs.asdict(self)
        for names in ("only_on", "never_on"):
            fields[names] = tuple(fields[names])
        return Retry(**fields)


class ArgumentRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """An argument. `types`: JSON types (an integer is also a number). `values`: the allowed values. Both
    are unrestricted by default."""

    required: bool = False
    types: Annotated[list[JsonType], Meta(min_length=1, max_length=7)] | None = None
    values: Annotated[list[str | int | float | bool | None], Meta(max_length=100)] | None = None


class SignatureRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The arguments of a task, by name. `open`: other arguments are also accepted."""

    arguments: Annotated[dict[Label, ArgumentRequest], Meta(max_length=100)] = {}
    open: bool = False

    def to_signature(self) -> Signature:
        if any("\0" in name for name in self.arguments):
            raise InvalidArguments("signature: a NUL character can't be stored")
        return Signature(
            arguments={
                name: Argument(one.required, one.types, one.values)
                for name, one in self.arguments.items()
            },
            open=self.open,
        )


class TaskRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A task with the defaults of its jobs and the policy for their retries."""

    name: Name
    queue: Name = "default"
    needs: Annotated[list[Name], Meta(max_length=20)] = []
    priority: Annotated[int, Meta(ge=-1000, le=1000)] = 0
    guarantee: GuaranteeName = "at_least_once"
    timeout: Annotated[float, Meta(gt=0, lt=1e9, description="Seconds.")] | None = None
    heartbeat_timeout: (
        Annotated[float, Meta(gt=0, lt=1e9, description="Seconds; see `alive` of a heartbeat.")]
        | None
    ) = None
    retry: TaskRetryRequest = msgspec.field(default_factory=TaskRetryRequest)
    signature: SignatureRequest | None = None
    resources: Resources | None = None
    near: Name | None = None
    near_patience: NearPatience | None = None

    def to_task(self) -> RemoteTask:
        guarantee = Guarantee.parse(self.guarantee)
        if guarantee is Guarantee.EXACTLY_ONCE:
            raise InvalidArguments(
                f"tasks: {self.name!r} is exactly_once, which needs the transaction of a node; "
                "workers over HTTP run at_least_once and at_most_once"
            )
        return RemoteTask(
            name=self.name, queue=known_name(self.queue),
            needs=demands(
                [known_name(need) for need in self.needs], self.resources, self.near,
                self.near_patience, (),
            ) or (), priority=self.priority,
            guarantee=guarantee, timeout=self.timeout, retry=self.retry.to_retry(),
            signature=self.signature.to_signature() if self.signature is not None else None,
        )  # fmt: skip


class WorkerRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A worker to register. `tasks`: the tasks whose jobs it runs, by name or with their defaults.
    `id`: a new UUID of your choice, so that a registration can be repeated."""

    name: Label
    tasks: Annotated[list[Name | TaskRequest], Meta(min_length=1, max_length=1000)]
    id: UUID | None = None
    slots: Annotated[int, Meta(ge=1, le=100_000, description="Jobs at a time.")] = 1
    queues: Annotated[list[Name], Meta(max_length=100, description="Default: all queues.")] = []
    capabilities: Annotated[list[Name], Meta(max_length=100)] = []
    version: Annotated[str, Meta(max_length=100)] = ""
    resources: Resources | None = None
    labels: Annotated[list[Name], Meta(max_length=100)] = []

    def to_worker(self, id: UUID, host: str) -> NewWorker:
        names = [task if isinstance(task, str) else task.name for task in self.tasks]
        for name in names:
            if name.startswith(OWN_PREFIX):
                raise InvalidArguments(f"tasks: {name!r} is Rota's own; choose another name")
            known_name(name)
        if "\0" in self.name + self.version:
            raise InvalidArguments("name, version: a NUL character can't be stored")
        return NewWorker(
            id=id, name=self.name, host=host, version=self.version or "-",
            queues=tuple(sorted(map(known_name, self.queues))),
            capabilities=tuple(sorted(map(known_name, self.capabilities))),
            tasks=tuple(sorted(set(names))), slots=self.slots,
            resources=None if self.resources is None else to_json(parse_node(self.resources)),
            labels=tuple(sorted(map(known_name, self.labels))),
            heartbeat_timeouts={
                task.name: task.heartbeat_timeout
                for task in self.tasks
                if isinstance(task, TaskRequest) and task.heartbeat_timeout is not None
            },
        )  # fmt: skip

    def to_tasks(self) -> list[RemoteTask]:
        return [task.to_task() for task in self.tasks if isinstance(task, TaskRequest)]


class Registered(msgspec.Struct, frozen=True):
    """Send a heartbeat every `heartbeat_seconds`; after `lease_seconds` without, you count as dead."""

    id: UUID
    heartbeat_seconds: float
    lease_seconds: float


class HeldJob(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job with the token that it was claimed with."""

    job: UUID
    token: Token

    @property
    def key(self) -> JobToken:
        return self.job, self.token


class HeartbeatRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`jobs`: all jobs that you hold: running ones, and those whose finish was not answered yet.
    `alive`: the jobs whose handlers have sent a heartbeat since your last one."""

    jobs: Annotated[list[HeldJob], Meta(max_length=10_000)] | None = None
    alive: Annotated[list[HeldJob], Meta(max_length=10_000)] = []
    draining: bool = False


class RelayedHeartbeat(HeartbeatRequest, kw_only=True):
    """A heartbeat by a broker, which may arrive late. `seen`: the highest of the tokens that you have
    been offered and of those that claims were answered with; nothing with a higher one is taken for
    unknown to you."""

    seen: Token = 0


class HeartbeatAnswer(msgspec.Struct, frozen=True):
    """`cancel`: jobs to stop and to finish as cancelled. `lost`: those of the jobs you named that are no
    longer yours. Stop them; reports about them are ignored."""

    cancel: Sequence[HeldJob]
    lost: Sequence[HeldJob]
    heartbeat_seconds: float
    lease_seconds: float


class ClaimRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`request`: a new id for each claim; the same id when you repeat a claim that was not answered."""

    request: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    max: Annotated[int, Meta(ge=1, le=100)] = 1
    wait: Annotated[float, Meta(ge=0, le=30, description="Seconds, for the first job.")] = 0


class RelayedClaim(ClaimRequest, kw_only=True):
    """A claim by a broker. `attempt`: 1, and one more each time you repeat the claim. The answer to an
    earlier attempt doesn't count any more."""

    attempt: Annotated[int, Meta(ge=1, le=1_000_000_000)] = 1


class BeginRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Jobs that you were offered, and are about to start."""

    jobs: Annotated[list[HeldJob], Meta(max_length=1000)]


class BeginAnswer(msgspec.Struct, frozen=True):
    """`go`: those that you may start. The others are not yours to start: finish them as released."""

    go: Sequence[HeldJob]


class ClaimedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is yours until its timeout or your lease expires."""

    job: UUID
    token: int
    task: str
    payload: Any
    attempt: int
    max_attempts: int
    guarantee: GuaranteeName
    timeout: float | None
    due_at: datetime
    key: str | None
    headers: Any


class Claimed(msgspec.Struct, frozen=True):
    """`cancel`: jobs to stop, if their cancellation was requested while the claim waited."""

    jobs: Sequence[ClaimedJob]
    cancel: Sequence[HeldJob]


class OfferedJob(ClaimedJob, frozen=True, kw_only=True):
    """A job that is offered. `go`: it may start without `begin`, because nothing has to be written
    before that."""

    go: bool


class Offered(msgspec.Struct, frozen=True):
    """Jobs that are offered, and as `Claimed`. `seen`: as if you had been offered this token, too: all
    that was claimed for you before has a lower one."""

    jobs: Sequence[OfferedJob]
    cancel: Sequence[HeldJob]
    seen: int


class ErrorRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """An error. `type` is compared with `only_on` and `never_on` of the retry policy."""

    type: str = "Error"
    message: str = ""
    traceback: str = ""


class FinishItem(HeldJob, frozen=True, kw_only=True):
    """The outcome of an attempt."""

    outcome: OutcomeName
    result: Any = None
    error: ErrorRequest | None = None
    seconds: Annotated[Seconds, Meta(description="With retry_after.")] | None = None
    fatal: Annotated[bool, Meta(description="With failed: don't try again.")] = False
    begun: Annotated[bool, Meta(description="With released: the handler was started.")] = True


class FinishRequest(msgspec.Struct, forbid_unknown_fields=True):
    items: Annotated[list[FinishItem], Meta(max_length=1000)]


class ProgressItem(HeldJob, frozen=True, kw_only=True):
    done: Annotated[float, Meta(ge=-1e300, le=1e300)]
    total: Annotated[float, Meta(ge=-1e300, le=1e300)] | None = None
    message: Annotated[str, Meta(max_length=500)] = ""


class ProgressRequest(msgspec.Struct, forbid_unknown_fields=True):
    items: Annotated[list[ProgressItem], Meta(max_length=1000)]


class LogItem(HeldJob, frozen=True, kw_only=True):
    """Lines of one attempt. `first`: the number of the first of them, counted from 1 in each attempt; a
    line whose number was sent before is not written again."""

    first: Annotated[int, Meta(ge=1, le=1_000_000_000)]
    lines: Annotated[list[str], Meta(max_length=1000)]
    stream: Literal["stdout", "stderr", "debug", "info", "warning", "error"] = "stdout"


class LogRequest(msgspec.Struct, forbid_unknown_fields=True):
    items: Annotated[list[LogItem], Meta(max_length=100)]


class Answered(HeldJob, frozen=True):
    """`stale`: the job is no longer yours, and nothing was changed."""

    answer: Answer


class Answers(msgspec.Struct, frozen=True):
    """One answer for each item, in the same order."""

    items: Sequence[Answered]


class Left(msgspec.Struct, frozen=True):
    """The number of jobs that were given back."""

    returned: int


def to_claimed(work: Work) -> ClaimedJob:
    return ClaimedJob(**_claimed(work))


def to_offered(work: Work) -> OfferedJob:
    return OfferedJob(**_claimed(work), go=not must_mark(work))


def _claimed(work: Work) -> dict[str, Any]:
    return {
        "job": work.id, "token": work.token, "task": work.task, "payload": msgspec.Raw(work.payload),
        "attempt": work.attempt, "max_attempts": work.max_attempts, "guarantee": work.guarantee.label,
        "timeout": work.timeout, "due_at": work.due_at, "key": work.key,
        "headers": msgspec.Raw((work.headers or "{}").encode()),
    }  # fmt: skip


def to_held(jobs: Sequence[JobToken]) -> list[HeldJob]:
    return [HeldJob(*job) for job in jobs]


def to_outcome(item: FinishItem, max_result_bytes: int) -> Outcome:
    match item.outcome:
        case "succeeded":
            if item.error is not None and item.error.type == RESULT_DROPPED:
                return result_dropped(item.error.message[:MESSAGE_LIMIT])
            return encode_result(item.result, max_result_bytes)
        case "failed":
            return Outcome(OutcomeKind.RAISED, failure=_failure(item), fatal=item.fatal)
        case "retry_after":
            if item.seconds is None:
                raise InvalidArguments("seconds: required with retry_after")
            failure = _failure(item, "RetryAfter")
            return Outcome(OutcomeKind.RAISED, failure=failure, retry_after=item.seconds)
        case "cancelled":
            return Outcome(OutcomeKind.CANCELLED)
        case "released":
            return Outcome(OutcomeKind.RETURNED)


def _failure(item: FinishItem, usual: str = "Error") -> Failure:
    error = item.error or ErrorRequest(type=usual)
    name = error.type[:NAME_LIMIT] or usual
    return Failure(
        name, error.message[:MESSAGE_LIMIT], error.traceback[-TRACEBACK_LIMIT:], lineage=(name,)
    )
