"""The structs of the HTTP API that server and client share, where the library has none already.

Jobs, schedules, occurrences, nodes, queues, log lines and events are the library's own (`rota.Job`,
`rota.ScheduleStatus`, ...). Fields that a newer server adds are passed over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, Required, TypedDict
from uuid import UUID

import msgspec

from rota.core.administration import (
    EndpointStatus,
    Namespace,
    RoleInfo,
    SinkStatus,
    TriggerStatus,
    User,
    Webhook,
)
from rota.core.signature import Signature
from rota.core.time.calendars import NamedCalendar
from rota.core.time.lint import Warned
from rota.core.time.status import Audit, LatestOccurrence
from rota.core.unique import ThrottleKeep, UniqueConflict, UniqueScope
from rota.model import (
    Alert,
    Attempt,
    BulkChange,
    Count,
    DeadCount,
    DeadGroup,
    Failure,
    FairShare,
    GuaranteeName,
    JobSummary,
    LimitHolder,
    LimitStatus,
    MaintenanceWindow,
    MapMember,
    NodeStatus,
    PoolStatus,
    QueueStatus,
    RunCheckpoint,
    RunStep,
    SavedView,
    ShardStatus,
    ShareService,
    StateName,
    Takeover,
    TaskInfo,
    WorkflowInfo,
)


class ProblemField(msgspec.Struct, frozen=True):
    name: str
    message: str


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of an error response, as far as a client reads it."""

    title: str = ""
    detail: str = ""
    code: str = ""
    subject: str = ""
    key: str = ""
    task: str = ""
    quota: str = ""
    depth: int | None = None
    max_depth: int | None = None
    request_id: str = ""
    fields: list[ProblemField] = []


class NewJobDict(TypedDict, total=False):
    """A job for `submit_many`: `task`, and whatever else `submit` takes."""

    task: Required[str]
    payload: Mapping[str, Any]
    at: datetime
    delay: float | timedelta
    queue: str
    needs: Sequence[str]
    priority: int
    guarantee: GuaranteeName
    max_attempts: int
    timeout: float
    heartbeat_timeout: float
    key: str
    tags: Sequence[str]
    headers: Mapping[str, Any]
    unique: UniqueScope | float | timedelta
    unique_key: str
    unique_conflict: UniqueConflict
    debounce: float | timedelta
    debounce_max: float | timedelta
    throttle: float | timedelta
    throttle_keep: ThrottleKeep
    resources: Mapping[str, float | str]
    near: str
    near_patience: float


class LineRefused(msgspec.Struct, frozen=True):
    """The reason that one of many jobs was refused; `line` counts from 1."""

    line: int
    code: str
    detail: str


class ManySubmitted(msgspec.Struct, kw_only=True):
    """The outcome of `submit_many`. `ids` are in the order of the jobs; None for a refused one."""

    ids: list[UUID | None] = []
    stored: int = 0
    existed: int = 0
    errors: list[LineRefused] = []
    warnings: list[str] = []


class JobPage(msgspec.Struct, frozen=True):
    """`looked_back_to`: `next` goes on with jobs that were created before. Null: what was looked at was
    enough for this page."""

    items: Sequence[JobSummary]
    next: str | None
    count: Count | None
    looked_back_to: datetime | None = None


class JobResult(msgspec.Struct, frozen=True):
    """The result of a job. `ended` is false until the job has ended."""

    id: UUID
    state: StateName
    ended: bool
    result: Any
    error: Failure | None
    finished_at: datetime | None


class Attempts(msgspec.Struct, frozen=True):
    """The last twenty attempts that failed, were lost or were interrupted, and the current number."""

    items: Sequence[Attempt]
    attempt: int
    max_attempts: int


class JobFilterDict(TypedDict, total=False):
    """A filter of jobs. `since` and `until` limit the time of their creation."""

    state: str | Sequence[str]
    task: str
    queue: str
    tag: str
    since: datetime
    until: datetime
    text: str
    schedule: str
    outcome: str


class DeadGroups(msgspec.Struct, frozen=True):
    items: Sequence[DeadGroup]


class DeadCounts(msgspec.Struct, frozen=True):
    items: Sequence[DeadCount]


class JobIds(msgspec.Struct, frozen=True):
    ids: Sequence[UUID]


class ShardList(msgspec.Struct, frozen=True):
    """The shards with their owners, and recent takeovers, newest first."""

    shards: Sequence[ShardStatus]
    takeovers: Sequence[Takeover]


class LatestOccurrences(msgspec.Struct, frozen=True):
    items: Sequence[LatestOccurrence]
    next: str | None = None


class CalendarList(msgspec.Struct, frozen=True):
    items: Sequence[NamedCalendar]


class ScheduleChanges(msgspec.Struct, frozen=True):
    """Created, updated or unchanged, for each of the schedules that were given."""

    changes: Sequence[str]


class TaskSignatures(msgspec.Struct, frozen=True):
    """The signatures of a task, one for each of its live releases. Null: no node has registered it."""

    task: str
    signatures: Sequence[Signature] | None


class SignatureList(msgspec.Struct, frozen=True):
    items: Sequence[TaskSignatures]


class EndpointList(msgspec.Struct, frozen=True):
    items: Sequence[EndpointStatus]


class SinkList(msgspec.Struct, frozen=True):
    items: Sequence[SinkStatus]


class TriggerList(msgspec.Struct, frozen=True):
    items: Sequence[TriggerStatus]


class WebhookList(msgspec.Struct, frozen=True):
    """Webhooks; `allowed`: hosts that requests may go to besides public addresses."""

    items: Sequence[Webhook]
    allowed: Sequence[str]


class NamespaceList(msgspec.Struct, frozen=True):
    """Namespaces; `encrypted`: the names of those whose new jobs are encrypted."""

    items: Sequence[Namespace]
    encrypted: Sequence[str] = ()


class UserList(msgspec.Struct, frozen=True):
    items: Sequence[User]


class RoleList(msgspec.Struct, frozen=True):
    """Roles; `permissions`: all that a role can have."""

    items: Sequence[RoleInfo]
    permissions: Sequence[str] = ()


class EndedSessions(msgspec.Struct, frozen=True):
    ids: Sequence[UUID]


class QueueList(msgspec.Struct, frozen=True):
    items: Sequence[QueueStatus]


class MaintenanceList(msgspec.Struct, frozen=True):
    items: Sequence[MaintenanceWindow]


class PoolList(msgspec.Struct, frozen=True):
    items: Sequence[PoolStatus]


class ShareServiceList(msgspec.Struct, frozen=True):
    items: Sequence[ShareService]


class AlertList(msgspec.Struct, frozen=True):
    items: Sequence[Alert]


class BulkChangeList(msgspec.Struct, frozen=True):
    items: Sequence[BulkChange]


class SavedViewList(msgspec.Struct, frozen=True):
    items: Sequence[SavedView]


class ShareList(msgspec.Struct, frozen=True):
    items: Sequence[FairShare]


class LimitList(msgspec.Struct, frozen=True):
    items: Sequence[LimitStatus]


class HolderList(msgspec.Struct, frozen=True):
    items: Sequence[LimitHolder]


class TaskList(msgspec.Struct, frozen=True):
    items: Sequence[TaskInfo]


class NodeList(msgspec.Struct, frozen=True):
    """Nodes. `unowned_shards`: the number of shards that no scheduler owns now."""

    items: Sequence[NodeStatus]
    shards: int
    unowned_shards: int


class RuleSettings(TypedDict, total=False):
    """The settings of a rule."""

    cron: str
    every: str | float | timedelta
    calendar: str
    rrule: str
    anchor: datetime
    tz: str
    gap: str
    fold: str
    starts: datetime
    ends: datetime
    max_occurrences: int
    jitter: str | float | timedelta
    spread: str | float | timedelta
    exclude: Sequence[str]
    include: Sequence[str]


class ScheduleSettings(RuleSettings, total=False):
    """The settings of a schedule: one of `cron`, `every`, `calendar` and `rrule`, the rest optional."""

    workflow: str  # to start, in place of a task
    payload: Mapping[str, Any]
    options: Mapping[str, Any]
    overlap: str
    max_queued: int
    drop: Literal["oldest", "newest"]
    max_running: int
    catch_up: Any
    description: str
    tags: Sequence[str]
    paused: bool


class AuditReport(msgspec.Struct, frozen=True):
    clean: bool
    audit: Audit


class Lint(msgspec.Struct, frozen=True):
    warnings: Sequence[Warned]


class Me(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a token or session, and what it may do. `csrf` must be sent as X-Rota-CSRF with
    every change that is made with a session's cookie."""

    name: str
    kind: str
    namespace: str
    role: str
    namespaces: dict[str, str]
    scopes: list[str]
    prefix: str | None = None
    expires_at: datetime | None = None
    csrf: str | None = None
    now: datetime | None = None  # the database's time


class WorkflowList(msgspec.Struct, frozen=True):
    """The workflows of a namespace."""

    items: Sequence[WorkflowInfo]


class RunStarted(msgspec.Struct, frozen=True):
    """A run that was started. `existed`: its key had named it before, nothing new was started."""

    id: UUID
    workflow: str
    existed: bool = False


class CheckpointPage(msgspec.Struct, frozen=True):
    """The history of a durable function. `next`: what to pass as `after` for the next page."""

    items: Sequence[RunCheckpoint]
    next: int | None


class MemberPage(msgspec.Struct, frozen=True):
    """Members of a map. `next`: what to pass as `after` for the next page; null on the last."""

    items: Sequence[MapMember]
    next: int | None


class RunStepPage(msgspec.Struct, frozen=True):
    """Steps of a run. `next`: what to pass as `after` for the next page; null on the last."""

    items: Sequence[RunStep]
    next: int | None
