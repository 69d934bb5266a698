"""The nouns of the public API, as frozen structs without behaviour."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Any, Literal, Self, TypeAlias
from uuid import UUID

import msgspec

from rota.errors import ConfigError, RetryAfter
from rota.lib.display import Bar, amount, as_html, printable, progress_bar

GuaranteeName: TypeAlias = Literal["at_least_once", "at_most_once", "exactly_once"]
RunnerName: TypeAlias = Literal["loop", "process", "thread"]
QueuePolicy: TypeAlias = Literal["priority", "fair", "fifo", "edf"]
StateName: TypeAlias = Literal[
    "waiting", "scheduled", "ready", "running", "succeeded", "failed", "cancelled", "skipped"
]
FinalStateName: TypeAlias = Literal["succeeded", "failed", "cancelled", "skipped"]
OutcomeName: TypeAlias = Literal[
    "succeeded", "raised", "timed_out", "heartbeat_timeout", "crashed", "lost", "cancelled", "returned"
]  # fmt: skip


class Labelled(IntEnum):
    """A choice that tables store as a number, and that users see as its name in lower case."""

    @property
    def label(self) -> str:
        return self.name.lower()

    @classmethod
    def parse(cls, label: str) -> Self:
        try:
            return cls[label.upper()]
        except KeyError:
            name = cls.__name__.removesuffix("Kind").lower()
            noun = "state" if name.endswith("state") else name
            known = ", ".join(choice.label for choice in cls)
            raise ConfigError(f"{noun} {label!r} is not one of: {known}", field=noun) from None


class State(Labelled):
    """The state of a job."""

    WAITING = 1
    SCHEDULED = 2
    READY = 3
    RUNNING = 4
    SUCCEEDED = 5
    FAILED = 6
    CANCELLED = 7
    SKIPPED = 8

    @property
    def is_final(self) -> bool:
        return self >= State.SUCCEEDED


class Guarantee(Labelled):
    """The promise about how many times a job may run, and its effects happen."""

    AT_LEAST_ONCE = 1
    AT_MOST_ONCE = 2
    EXACTLY_ONCE = 3


class OutcomeKind(Labelled):
    """The ways in which an attempt ends."""

    SUCCEEDED = 1
    RAISED = 2  # the handler raised
    TIMED_OUT = 3  # over its timeout or the maximum run time, and stopped
    CRASHED = 4  # its process died under it
    LOST = 5  # its node was declared dead
    CANCELLED = 6  # stopped because somebody cancelled the job
    RETURNED = 7  # given back unharmed: never started, or interrupted by a shutdown
    HEARTBEAT_TIMEOUT = 8  # gave no sign of life for longer than its task allows, and was stopped


# The type of the error of a job that succeeded, and whose result could not be kept.
RESULT_DROPPED = "ResultDropped"


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """The error of one attempt, as text: safe to store, to show and to send."""

    type: str
    message: str
    traceback: str = ""
    # The names of the exception's classes, base classes included, so that per-exception rules
    # can be judged by the parent of a child process, which doesn't have the exception itself.
    lineage: tuple[str, ...] = ()


class Outcome(msgspec.Struct, frozen=True):
    """The end of one attempt, as its runner saw it. `rota.core.lifecycle` decides what follows."""

    kind: OutcomeKind
    result: bytes | None = None  # JSON
    failure: Failure | None = None
    fatal: bool = False
    retry_after: float | None = None
    settled: bool = False  # it is written already: there is nothing left to finish

    @classmethod
    def succeeded(cls, result: bytes | None = None) -> Outcome:
        return cls(OutcomeKind.SUCCEEDED, result)


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """A policy: when and how often a failed job is tried again.

    The delay before attempt *n + 1* is ``base * factor ** (n - 1)``, at most `cap`, and then
    spread by `jitter` (0.2: up to 20 % earlier or later). `max_attempts` counts the first one.
    """

    max_attempts: int = 5
    base: float = 2.0
    factor: float = 2.0
    cap: float = 3600.0
    jitter: float = 0.2
    # Exceptions (classes, or their dotted names) that are, or are not, worth another try.
    only_on: tuple[type[BaseException] | str, ...] = ()
    never_on: tuple[type[BaseException] | str, ...] = ()

    def __post_init__(self) -> None:
        if type(self.max_attempts) is not int or not 1 <= self.max_attempts <= 32_000:
            raise ConfigError(f"max_attempts must be from 1 to 32000, not {self.max_attempts!r}")
        for name, least in (("base", 0), ("cap", 0), ("factor", 1)):
            value = getattr(self, name)
            if not least <= value < math.inf:
                raise ConfigError(f"a retry's {name} must be a number >= {least}, not {value!r}")
        if not 0 <= self.jitter <= 1:
            raise ConfigError(f"a retry's jitter must be from 0 to 1, not {self.jitter!r}")

    @staticmethod
    def after(seconds: float, reason: str = "") -> RetryAfter:
        """Return an exception to raise from a handler: the job is tried again after the delay."""
        return RetryAfter(seconds, reason)


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One failed, lost or interrupted try, as kept with its job."""

    number: int
    outcome: str
    token: int
    node: str
    started_at: datetime | None = None
    ended_at: datetime | None = None
    error: Failure | None = None


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One intended execution of a task, in any state."""

    id: UUID
    namespace: str
    task: str
    queue: str
    needs: tuple[str, ...]
    state: str
    priority: int
    due_at: datetime
    created_at: datetime
    payload: Any
    headers: dict[str, Any]
    key: str | None
    guarantee: str
    attempt: int
    max_attempts: int
    timeout: float | None
    crashes: int
    node: UUID | None
    token: int | None
    started_at: datetime | None
    finished_at: datetime | None
    cancel_requested_at: datetime | None
    result: Any
    error: Failure | None
    progress: Any
    attempts: Sequence[Attempt]
    run_id: UUID | None = None  # of the workflow's run whose step it is
    step: int | None = None

    def bar(self) -> Bar:
        """Return how far it has come, as its handler reported."""
        return progress_bar(f"{self.task}, {self.state}", self.progress)

    def words(self) -> str:
        """Say in a line what it is and how it is doing."""
        said = [f"{self.task}, {self.state}"]
        if self.attempt > 1 or self.state == "running":
            said.append(f"attempt {self.attempt} of {self.max_attempts}")
        if self.state == "running" and (far := amount(self.bar())):
            said.append(far)
        if self.error is not None:
            said.append(printable(f"{self.error.type}: {self.error.message}"[:200]))
        return ", ".join(said)

    def __repr__(self) -> str:
        return f"<Job {self.id}: {self.words()}>"

    def _repr_html_(self) -> str:
        message = self.progress.get("message") if isinstance(self.progress, dict) else None
        rows = {
            "id": str(self.id), "progress": message, "attempt": f"{self.attempt} of {self.max_attempts}",
            "due": f"{self.due_at:%Y-%m-%d %H:%M:%S %Z}",
            "started": f"{self.started_at:%Y-%m-%d %H:%M:%S %Z}" if self.started_at else None,
            "finished": f"{self.finished_at:%Y-%m-%d %H:%M:%S %Z}" if self.finished_at else None,
            "error": f"{self.error.type}: {self.error.message}" if self.error else None,
            "result": self.result,
        }  # fmt: skip
        return as_html(self.task, self.state, self.bar(), rows)


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One process in the cluster."""

    id: UUID
    namespace: str
    name: str
    host: str
    pid: int
    version: str
    roles: tuple[str, ...]
    state: str
    started_at: datetime
    heartbeat_age: float
    queues: tuple[str, ...]  # empty: all of them
    capabilities: tuple[str, ...]
    slots: int
    running: int
    load: float | None = None  # running / slots; None without slots
    idle_slots: int | None = None  # the free slots of a worker that waits for hints
    shards: int | None = None  # how many a scheduler owns; None: it isn't one
    remote: bool = False  # a worker over HTTP
    wish: str | None = None  # what it was asked to do: drain, stop
    coordinator: str | None = None  # who shares the shards out, for a scheduler; None: PostgreSQL
    coordinator_fault: str | None = None  # why the coordinator doesn't answer; None: it does


class NodeJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a node runs. `started_at` is when it was claimed, if its start isn't recorded."""

    id: UUID
    task: str
    queue: str
    state: str
    started_at: datetime
    finished_at: datetime | None
    attempt: int = 1


class RunPeriod(msgspec.Struct, frozen=True, kw_only=True):
    """The runs that ended in a period. `duration` and `lag`: seconds, by the names p50, p95 and p99.
    `ready` and `ready_lag`: the most jobs that were ready, and the longest that one had been due."""

    at: datetime
    runs: int
    failed: int
    duration: dict[str, float] | None
    lag: dict[str, float] | None
    ready: int | None = None
    ready_lag: float | None = None


class RunStats(msgspec.Struct, frozen=True, kw_only=True):
    """The runs that ended in a stretch of time, which is cut into periods of `step` seconds.

    `durations` and `lags` are histograms: counts of buckets, of which the first is up to a millisecond,
    and each is wider than the one before by the square root of two.
    """

    first: datetime
    end: datetime
    step: int
    runs: int
    failed: int
    seconds: float  # that all of them took together
    duration: dict[str, float] | None
    lag: dict[str, float] | None
    periods: list[RunPeriod]
    durations: list[int]
    lags: list[int]


class QueuePeriod(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of a queue that ended in a period, and the most of its jobs that were ready."""

    at: datetime
    runs: int
    failed: int
    ready: int | None
    ready_lag: float | None


class TaskTotals(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of a task in a stretch of time."""

    task: str
    runs: int
    failed: int
    seconds: float
    last_at: datetime | None


class ShardStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A slice of the future jobs and the schedules, and the scheduler that owns it."""

    shard: int
    epoch: int  # rises with every takeover
    owner: UUID | None  # None: nobody holds it now
    node: str | None  # the owner's name


class Takeover(msgspec.Struct, frozen=True, kw_only=True):
    """Shards that a scheduler took at one moment."""

    at: datetime
    shards: int
    owner: UUID
    node: str | None
    previous: UUID | None  # None: they had been handed over, or were nobody's yet
    previous_node: str | None
    gap: float | None  # for how many seconds they had been nobody's; None: since ever


class QueueStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A queue, and the number of jobs that it holds now."""

    namespace: str
    name: str
    paused_at: datetime | None
    ready: int
    running: int
    scheduled: int
    lag: float | None  # seconds that the oldest ready job has been due
    max_run_time: float | None = None  # of jobs without a timeout; None: the installation's
    concurrency: int | None = None  # jobs that may run at a time, in the whole cluster
    concurrency_per_key: int | None = None  # of those, jobs with the same concurrency_key
    rate_count: int | None = None  # starts in a period, in the whole cluster
    rate_period: float | None = None  # seconds
    rate_burst: int | None = None  # starts that may come at once
    policy: QueuePolicy = "priority"  # which of its jobs start first
    max_depth: int | None = None  # jobs that have not ended, from which on submits are refused
    depth: int | None = None  # how many there are; None: they are not counted
    full_since: datetime | None = None  # since when submits are refused


class PoolLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The load of a queue that a pool serves."""

    queue: str
    runnable: int  # jobs that could start now: not those of a paused queue, nor over a limit
    running: int
    arrivals: float  # jobs a second
    run_time: float  # seconds that one takes


class PoolStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A pool of workers: what it serves, and how many slots it should have."""

    namespace: str
    name: str
    queues: tuple[str, ...]  # empty: all
    capabilities: tuple[str, ...]
    min_slots: int
    max_slots: int
    slots_per_worker: int
    drain_target: float  # seconds within which what waits should be worked off
    slots: int  # that it should have now
    workers: int  # that have so many slots
    needed: float  # slots that the load keeps busy
    runnable: int  # jobs that could start now
    running: int
    decided_at: datetime | None
    loads: Sequence[PoolLoad] = ()


class FairShare(msgspec.Struct, frozen=True, kw_only=True):
    """The share of a fairness key in a fair queue."""

    key: str  # empty: jobs without a fairness_key
    weight: float
    served: float  # seconds in which its jobs have run, since it last had none for a minute
    running: int
    waiting: bool  # whether it has jobs that wait


class ShareService(msgspec.Struct, frozen=True, kw_only=True):
    """The seconds in which the jobs of a fairness key ran, minute by minute."""

    key: str | None  # empty: jobs without a fairness_key; None: all other keys together
    first: datetime
    seconds: Sequence[float]  # by minute, from `first` on

    @property
    def total(self) -> float:
        return sum(self.seconds)

    @property
    def minutes(self) -> list[datetime]:
        return [self.first + timedelta(minutes=n) for n in range(len(self.seconds))]


class LimitStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that is in use: `queue:images`, `task:charge/key:customer-42`, `queue:images/rate`."""

    name: str
    most: int | None  # jobs that may run at a time; None: it is a rate
    spacing: float | None = None  # of a rate: the seconds from one start to the next
    burst: int | None = None  # of a rate: starts that may come at once
    next_at: datetime | None = None  # of a rate: when the next job may start
    running: int
    waiting: int  # groups of jobs with the same keys that wait for a place


class LimitHolder(msgspec.Struct, frozen=True, kw_only=True):
    """A job that runs under a limit."""

    id: UUID
    task: str
    node: str | None
    since: datetime


class TaskInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A task that nodes have registered. `arguments` and `returns` are JSON Schemas; None: unknown."""

    name: str
    queue: str
    needs: tuple[str, ...] = ()
    priority: int = 0
    guarantee: str
    max_attempts: int
    timeout: float | None = None
    registered_at: datetime
    workers: int = 0  # live nodes that run it
    version: int = 1  # of its payloads
    description: str = ""
    arguments: dict[str, Any] | None = None
    returns: dict[str, Any] | None = None


class Accepted(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job that is stored. `existed`: its key had named it before, nothing new was stored.
    `warnings`: e.g. that no node has registered its task so far. `duplicate`: it is a unique job that
    was there before, and stands for the submitted one."""

    id: UUID
    task: str
    existed: bool = False
    warnings: tuple[str, ...] = ()
    duplicate: bool = False


class Cancelled(msgspec.Struct, frozen=True):
    """A job that was cancelled. `stopping`: it runs, and has been asked to stop."""

    id: UUID
    outcome: Literal["cancelled", "stopping"]


class Discarded(msgspec.Struct, frozen=True):
    """A job that was taken off the dead-letter list."""

    id: UUID


class Triggered(msgspec.Struct, frozen=True):
    """A schedule's job that was started outside of its rule."""

    job_id: UUID


class Backfilled(msgspec.Struct, frozen=True):
    """The number of occurrences that a backfill runs, or would run."""

    count: int
    dry_run: bool


class DeadCount(msgspec.Struct, frozen=True):
    """The number of dead letters of a task with one type of error, and when the last one failed."""

    task: str
    error: str | None
    count: int
    last_at: datetime


class ManyChanged(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an action on many jobs. `matched`: how many there were, the limit at most. `more`:
    there may be others; repeat the call for them. `bulk`: under this id `app.bulk` has what
    became of them."""

    dry_run: bool
    matched: int
    changed: int
    more: bool
    bulk: UUID | None = None


class BulkChange(msgspec.Struct, frozen=True, kw_only=True):
    """A bulk action, what became of its jobs, and whether it can be undone."""

    id: UUID
    action: str  # cancel, retry, discard
    by: str
    at: datetime
    jobs: int
    counted: int  # jobs whose states were looked up; fewer than `jobs` if there are many
    states: dict[str, int]  # of those, by state
    finished: int  # of those, how many have ended
    sentence: str  # 5 retried: 3 succeeded, 2 failed again
    can_undo: int  # jobs that an undo would try to bring back
    undone_at: datetime | None = None
    undone: int | None = None  # jobs that an undo brought back


class JobSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A job in a list: everything but what may be long (payload, result, headers, attempts)."""

    id: UUID
    task: str
    queue: str
    needs: tuple[str, ...]
    state: str
    priority: int
    due_at: datetime
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    cancel_requested_at: datetime | None
    attempt: int
    max_attempts: int
    key: str | None
    tags: list[str]
    node: UUID | None
    schedule_id: UUID | None
    error_type: str | None
    error_message: str | None  # its beginning


class Count(msgspec.Struct, frozen=True):
    """A number of jobs; `exact` is false when it is the planner's estimate."""

    value: int
    exact: bool


class DeadGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters that are alike but for numbers and ids in their messages."""

    fingerprint: str
    task: str
    error: str | None
    message: str | None  # of the latest
    count: int
    first_at: datetime
    last_at: datetime
    latest: UUID


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded event: a failure, a delay or another thing that someone should look at."""

    id: int
    at: datetime
    kind: str
    task: str
    job_id: UUID | None
    detail: dict[str, Any]


class Remedy(msgspec.Struct, frozen=True):
    """What somebody can do about what an explanation or an alert says.

    `verb`: ``resume_queue``, ``retry_job``, ``raise_limit``, or ``show_...`` for the place to look at;
    `subject`: the name or id of what it concerns, empty for pages without one.
    """

    verb: str
    subject: str
    text: str


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """Something that needs somebody's attention now.

    An acknowledgement covers what had happened by then: with the next occurrence (`latest_at`) the alert
    is active again. A silence covers everything until its end.
    """

    key: str  # stable: names the condition, such as queue-paused:mail
    severity: Literal["problem", "warning"]
    text: str
    latest_at: datetime | None = None  # when it last happened, or since when it holds
    active: bool = True  # neither acknowledged nor silenced
    acknowledged_at: datetime | None = None
    silenced_until: datetime | None = None
    marked_by: str | None = None
    note: str = ""
    remedies: tuple[Remedy, ...] = ()


class SavedView(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the dashboard with its filters, saved under a name."""

    owner: str
    name: str
    address: str
    shared: bool
    created_at: datetime


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line that a job printed or logged."""

    at: datetime
    attempt: int
    token: int
    seq: int  # from 1 in each attempt
    stream: str  # stdout, stderr, a log record's level, or mark: here lines were left out
    text: str


class WorkflowInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow as it is stored: its newest version, or the one that was asked for."""

    namespace: str
    name: str
    version: int
    created_at: datetime
    definition: Any
    retired_at: datetime | None = None
    running: int | None = None  # how many of its runs have not ended
    source: str = "code"  # where this version is declared: code, file, api


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a workflow. `state`: running, succeeded, failed or cancelled."""

    id: UUID
    namespace: str
    workflow: str
    version: int
    state: str
    round: int  # rises each time it is resumed
    created_at: datetime
    ended_at: datetime | None
    deadline_at: datetime | None
    paused_at: datetime | None
    cancel_requested_at: datetime | None
    input: Any
    error: Any
    priority: int | None = None
    key: str | None = None
    schedule_id: UUID | None = None
    parent_id: UUID | None = None  # the run that it is a step of
    steps: int | None = None  # how many there are, and how many of them have ended
    ended_steps: int | None = None
    problem: Any = (
        None  # why it was paused: the code of its durable function contradicts its history
    )
    status: Any = None  # what its durable function says of itself

    def bar(self) -> Bar:
        """Return how many of its steps have ended."""
        return Bar(f"{self.workflow}, {self._shown()}", self.ended_steps or 0, self.steps or None)

    def _shown(self) -> str:
        if self.state != "running":
            return self.state
        if self.paused_at is not None:
            return "paused"
        return "running" if self.cancel_requested_at is None else "cancelling"

    def _message(self) -> str | None:
        error = self.error or self.problem
        return str(error.get("message")) if isinstance(error, dict) else None

    def words(self) -> str:
        """Say in a line what it is and how it is doing."""
        said = [f"{self.workflow}, {self._shown()}"]
        if self.steps:
            said.append(f"{amount(self.bar())} steps")
        if (message := self._message()) is not None:
            said.append(printable(message[:200]))
        return ", ".join(said)

    def __repr__(self) -> str:
        return f"<Run {self.id}: {self.words()}>"

    def _repr_html_(self) -> str:
        rows = {
            "id": str(self.id), "status": self.status, "error": self._message(),
            "started": f"{self.created_at:%Y-%m-%d %H:%M:%S %Z}",
            "ended": f"{self.ended_at:%Y-%m-%d %H:%M:%S %Z}" if self.ended_at else None,
        }  # fmt: skip
        return as_html(self.workflow, self._shown(), self.bar(), rows)


class MapProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a map has come. `under_way`: members that were done in chunks that still run."""

    members: int
    succeeded: int
    failed: int
    under_way: int
    chunks: int
    ended_chunks: int
    running_jobs: int
    at_once: int
    closed: bool  # all members are known
    each: str


class GraphStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a run as its graph shows it: without results and errors."""

    number: int
    name: str
    kind: str
    task: str | None
    state: str
    after: Sequence[int]  # the numbers of the steps that it comes after
    started_at: datetime | None = None
    ended_at: datetime | None = None
    job_id: UUID | None = None
    progress: MapProgress | None = None  # of a map that has started


class RunCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a durable function has done, or waits for.

    `kind`: step, call, run, sleep, signal or note. `state`: waiting, succeeded, failed, cancelled, or
    skipped, of what lost a race.
    """

    number: int
    kind: str
    name: str
    state: str
    attempt: int
    created_at: datetime
    ended_at: datetime | None
    wake_at: datetime | None = None
    job_id: UUID | None = None
    signal: str | None = None
    signal_key: str | None = None
    digest: str | None = None
    result: Any = None
    error: Any = None


class SignalSent(msgspec.Struct, frozen=True):
    """The answer to a signal that was sent. `run_id`: the run that took it; None: it waits for one."""

    id: UUID
    existed: bool  # the same `once` was sent before: nothing happened now
    run_id: UUID | None = None


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """A signal that was sent. Without `taken_at` it waits for a function that takes it."""

    id: UUID
    name: str
    key: str
    sent_at: datetime
    once: str | None = None
    taken_at: datetime | None = None
    run_id: UUID | None = None
    payload: Any = None


class MapMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a map. `state`: waiting, running, succeeded, failed or cancelled."""

    number: int
    state: str
    attempt: int
    item: Any
    result: Any = None
    error: Any = None
    job_id: UUID | None = None  # of its chunk, or its own
    ended_at: datetime | None = None


class RunStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a run. `state`: waiting, running, succeeded, failed, cancelled, skipped or
    upstream_failed."""

    number: int
    name: str
    kind: str  # task, map or workflow
    task: str  # or the workflow's name
    state: str
    rule: str
    waits: int  # predecessors that have not ended
    after: tuple[str, ...] = ()
    when: str | None = None
    job_id: UUID | None = None  # of a workflow: its run
    started_at: datetime | None = None
    ended_at: datetime | None = None
    result: Any = None
    error: Any = None
    note: str | None = None  # such as that a person skipped it
    progress: MapProgress | None = None  # of a map that has started


class RunChanged(msgspec.Struct, frozen=True):
    """The result of an action on a run. `steps`: how many steps it concerned."""

    id: UUID
    outcome: Literal["cancelling", "paused", "resumed", "retried", "skipped"]
    steps: int = 0
