"""Rota: cron, delayed jobs and queues that run at the right time, the right number of times."""

from typing import TYPE_CHECKING, Any

from rota.app import App
from rota.calls import chain, chord, group
from rota.config import Settings
from rota.context import CONTEXT, Context, JobInfo, OccurrenceInfo, SyncContext
from rota.core.explain import Explanation
from rota.core.time.schedule import All, CatchUp, Latest, NoCatchUp, ScheduleSpec
from rota.errors import (
    ConfigError,
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
    SchemaMismatch,
    StoreUnavailable,
    SubmitError,
    UnfitArguments,
    UnknownTask,
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

if TYPE_CHECKING:
    from rota.node import Node

__version__ = "0.1.0"

__all__ = [
    "CONTEXT", "All", "App", "Attempt", "Audit", "CatchUp", "ConfigError", "Context", "Event",
    "EventLoopRunning", "Explanation", "Failure", "Fatal", "InvalidArguments", "Job",
    "JobError", "JobFailed", "JobHandle", "JobInfo", "JobStopped", "KeyConflict", "Latest",
    "LeaseLost", "NoCatchUp", "Node", "NodeStatus", "NotFound", "OccurrenceInfo",
    "OccurrenceStatus", "OnceNotKept", "OnceUnknown", "PayloadTooLarge", "QueueStatus",
    "ResultUnavailable", "Retry", "RetryAfter", "RotaError", "ScheduleSpec", "ScheduleStatus",
    "SchemaMismatch", "Settings", "ShardStatus", "StoreUnavailable", "SubmitError",
    "SyncContext", "Takeover", "Task", "UnfitArguments", "UnknownTask", "__version__", "chain",
    "chord", "group",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    # Programs that only submit, and child processes, needn't load everything that a node needs.
    if name == "Node":
        from rota.node import Node

        return Node
    raise AttributeError(f"module 'rota' has no attribute {name!r}")
