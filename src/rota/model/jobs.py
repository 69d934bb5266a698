"""Jobs, their attempts and outcomes, tasks, and what became of actions on jobs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from enum import IntEnum
from typing import Any, Literal, Self, TypeAlias
from uuid import UUID

import msgspec

from rota.errors import ConfigError, RetryAfter
from rota.lib.display import Bar, amount, as_html, printable, progress_bar

GuaranteeName: TypeAlias = Literal["at_least_once", "at_most_once", "exactly_once"]
RunnerName: TypeAlias = Literal["loop", "process", "thread"]
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
    resources: dict[str, float] = {}  # what it takes of its node; memory in bytes
    near: str | None = None  # the label of the nodes that may claim it at once

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
    resources: dict[str, float] = {}  # what it takes of its node; memory in bytes
    near: str | None = None


class Count(msgspec.Struct, frozen=True):
    """A number of jobs; `exact` is false when it is the planner's estimate."""

    value: int
    exact: bool


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line that a job printed or logged."""

    at: datetime
    attempt: int
    token: int
    seq: int  # from 1 in each attempt
    stream: str  # stdout, stderr, a log record's level, or mark: here lines were left out
    text: str


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


class DeadCount(msgspec.Struct, frozen=True):
    """The number of dead letters of a task with one type of error, and when the last one failed."""

    task: str
    error: str | None
    count: int
    last_at: datetime


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
    resources: dict[str, float] = {}  # what each of its jobs takes of its node; memory in bytes
    near: str | None = None  # the label of the nodes that may claim them at once
