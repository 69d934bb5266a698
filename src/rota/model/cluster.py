"""Nodes, shards, queues, pools and limits; statistics, events and alerts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias
from uuid import UUID

import msgspec

QueuePolicy: TypeAlias = Literal["priority", "fair", "fifo", "edf"]


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
    resources: dict[str, float] = {}  # what it has for jobs that ask for it; memory in bytes
    used: dict[str, float] = {}  # of that, what its jobs hold, as it told last
    labels: tuple[str, ...] = ()  # what jobs may be near to
    reserved: str | None = None  # the lane of a large job that it makes room for
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


class ShardStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A slice of the future jobs and the schedules, and the scheduler that owns it."""

    shard: int
    epoch: int  # rises with every takeover
    owner: UUID | None  # None: nobody holds it now
    node: str | None  # the owner's name


class HistoryPartition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition of the history: a day, an hour, or what had none (`past_other`)."""

    name: str
    bytes: int  # with its index
    jobs: int | None  # an estimate; None: the database has not looked yet


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
    history: str = "all"  # what is kept of its jobs that succeeded
    full_since: datetime | None = None  # since when submits are refused
    exact: bool = (
        True  # false: ready or scheduled jobs are so many that their numbers are estimates
    )


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


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded event: a failure, a delay or another thing that someone should look at."""

    id: int
    at: datetime
    kind: str
    task: str
    job_id: UUID | None
    detail: dict[str, Any]


class Remedy(msgspec.Struct, frozen=True):
    """An action that helps with the subject of an explanation or an alert.

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


class MaintenanceWindow(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which people are not told of events. `kinds`: those it covers; none named: all, and
    alerts. `open`: now."""

    name: str
    starts_at: datetime
    ends_at: datetime
    kinds: Sequence[str] = ()
    note: str = ""
    created_by: str = ""
    open: bool = False


class SavedView(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the dashboard with its filters, saved under a name."""

    owner: str
    name: str
    address: str
    shared: bool
    created_at: datetime


class Triggered(msgspec.Struct, frozen=True):
    """A schedule's job that was started outside of its rule."""

    job_id: UUID


class Backfilled(msgspec.Struct, frozen=True):
    """The number of occurrences that a backfill runs, or would run."""

    count: int
    dry_run: bool
