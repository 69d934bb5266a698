"""Rota: cron, delayed jobs and queues that run at the right time, the right number of times."""

from rota.app import App
from rota.config import Settings
from rota.context import Context, JobInfo, SyncContext
from rota.core.explain import Explanation
from rota.errors import (
    ConfigError,
    Fatal,
    InvalidArguments,
    JobError,
    JobStopped,
    KeyConflict,
    LeaseLost,
    NotFound,
    OnceUnknown,
    PayloadTooLarge,
    RetryAfter,
    RotaError,
    SchemaMismatch,
    StoreUnavailable,
    SubmitError,
    UnknownTask,
)
from rota.handle import JobFailed, JobHandle
from rota.model import Attempt, Failure, Job, Node, Queue, Retry
from rota.task import Task

__version__ = "0.1.0"

__all__ = [
    "App",
    "Attempt",
    "ConfigError",
    "Context",
    "Explanation",
    "Failure",
    "Fatal",
    "InvalidArguments",
    "Job",
    "JobError",
    "JobFailed",
    "JobHandle",
    "JobInfo",
    "JobStopped",
    "KeyConflict",
    "LeaseLost",
    "Node",
    "NotFound",
    "OnceUnknown",
    "PayloadTooLarge",
    "Queue",
    "Retry",
    "RetryAfter",
    "RotaError",
    "SchemaMismatch",
    "Settings",
    "StoreUnavailable",
    "SubmitError",
    "SyncContext",
    "Task",
    "UnknownTask",
    "__version__",
]
