"""Rota: cron, delayed jobs and queues that run at the right time, the right number of times."""

from typing import TYPE_CHECKING, Any

from rota.app import App
from rota.calls import chain, chord, group
from rota.config import Settings
from rota.context import CONTEXT, Context, JobInfo, OccurrenceInfo, SyncContext
from rota.core.explain import Explanation
from rota.core.time.schedule import All, CatchUp, Latest, NoCatchUp, ScheduleSpec
from rota.durable.context import DurableContext
from rota.durable.function import DurableFunction
from rota.durable.sync import SyncDurableContext
from rota.errors import (
    CallFailed,
    ConfigError,
    DuplicateJob,
    EventLoopRunning,
    Fatal,
    InvalidArguments,
    JobError,
    JobStopped,
    KeyConflict,
    LeaseLost,
    NotFound,
    OnceNotKept,
    OnceUnknown,
    PayloadTooLarge,
    ResultUnavailable,
    RetryAfter,
    RotaError,
    RunCancelled,
    SchemaMismatch,
    StepFailed,
    StoreUnavailable,
    SubmitError,
    UnfitArguments,
    UnknownTask,
    WaitTimedOut,
)
from rota.handle import JobFailed, JobHandle
from rota.model import (
    Attempt,
    Event,
    Failure,
    Job,
    NodeStatus,
    QueueStatus,
    Retry,
    ShardStatus,
    Takeover,
)
from rota.operations.ledger import Audit, OccurrenceStatus, ScheduleStatus
from rota.task import Task
from rota.workflow import RunFailed, RunHandle, Workflow

if TYPE_CHECKING:
    from rota.node import Node

__version__ = "0.1.0"

__all__ = [
    "CONTEXT", "All", "App", "Attempt", "Audit", "CallFailed", "CatchUp", "ConfigError",
    "Context", "DuplicateJob", "DurableContext", "DurableFunction", "Event", "EventLoopRunning",
    "Explanation", "Failure", "Fatal", "InvalidArguments", "Job", "JobError", "JobFailed", "JobHandle",
    "JobInfo", "JobStopped", "KeyConflict", "Latest", "LeaseLost", "NoCatchUp", "Node",
    "NodeStatus", "NotFound", "OccurrenceInfo", "OccurrenceStatus", "OnceNotKept", "OnceUnknown",
    "PayloadTooLarge", "QueueStatus", "ResultUnavailable", "Retry", "RetryAfter", "RotaError",
    "RunCancelled", "RunFailed", "RunHandle", "ScheduleSpec", "ScheduleStatus", "SchemaMismatch",
    "Settings", "ShardStatus", "StepFailed", "StoreUnavailable", "SubmitError", "SyncContext",
    "SyncDurableContext", "Takeover", "Task", "UnfitArguments", "UnknownTask", "WaitTimedOut",
    "Workflow", "__version__", "chain", "chord", "group",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    # Programs that only submit, and child processes, needn't load everything that a node needs.
    if name == "Node":
        from rota.node import Node

        return Node
    raise AttributeError(f"module 'rota' has no attribute {name!r}")
