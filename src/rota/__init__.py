"""Rota: cron, delayed jobs and queues that run at the right time, the right number of times."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rota.app import App
    from rota.calls import chain, chord, group
    from rota.config import Settings
    from rota.context import CONTEXT, Context, JobInfo, OccurrenceInfo, SyncContext
    from rota.core.explain import Explanation
    from rota.core.time.schedule import All, CatchUp, Latest, NoCatchUp, ScheduleSpec
    from rota.core.time.status import Audit, OccurrenceStatus, ScheduleStatus
    from rota.durable.context import DurableContext
    from rota.durable.function import DurableFunction
    from rota.durable.sync import SyncDurableContext
    from rota.errors import (
        CallFailed,
        ConfigError,
        DuplicateJob,
        EventLoopRunning,
        Fatal,
        HistoryNotKept,
        InvalidArguments,
        JobError,
        JobStopped,
        KeyConflict,
        LeaseLost,
        NotFound,
        OnceNotKept,
        OnceUnknown,
        PayloadTooLarge,
        PersonErased,
        QueueFull,
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
    from rota.lifecycle import State
    from rota.middleware import INJECTED, Injected
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
    from rota.node import Node
    from rota.run_handle import RunFailed, RunHandle
    from rota.submission import Submission
    from rota.task import Task
    from rota.workflow import Workflow

__version__ = "0.1.0"

__all__ = [
    "CONTEXT", "INJECTED", "All", "App", "Attempt", "Audit", "CallFailed", "CatchUp", "ConfigError",
    "Context", "DuplicateJob", "DurableContext", "DurableFunction", "Event", "EventLoopRunning",
    "Explanation", "Failure", "Fatal", "HistoryNotKept", "Injected", "InvalidArguments", "Job",
    "JobError", "JobFailed", "JobHandle", "JobInfo", "JobStopped", "KeyConflict", "Latest", "LeaseLost",
    "NoCatchUp", "Node",
    "NodeStatus", "NotFound", "OccurrenceInfo", "OccurrenceStatus", "OnceNotKept", "OnceUnknown",
    "PayloadTooLarge", "PersonErased", "QueueFull", "QueueStatus", "ResultUnavailable", "Retry",
    "RetryAfter",
    "RotaError", "RunCancelled", "RunFailed", "RunHandle", "ScheduleSpec", "ScheduleStatus",
    "SchemaMismatch", "Settings", "ShardStatus", "State", "StepFailed", "StoreUnavailable",
    "Submission", "SubmitError", "SyncContext", "SyncDurableContext", "Takeover", "Task",
    "UnfitArguments", "UnknownTask", "WaitTimedOut", "Workflow", "__version__", "chain", "chord",
    "group",
]  # fmt: skip

# Loaded when they are used: programs that only need the client don't need what the database needs.
_HOMES = {
    "rota.app": ("App",),
    "rota.calls": ("chain", "chord", "group"),
    "rota.config": ("Settings",),
    "rota.context": ("CONTEXT", "Context", "JobInfo", "OccurrenceInfo", "SyncContext"),
    "rota.core.explain": ("Explanation",),
    "rota.core.time.schedule": ("All", "CatchUp", "Latest", "NoCatchUp", "ScheduleSpec"),
    "rota.durable.context": ("DurableContext",),
    "rota.durable.function": ("DurableFunction",),
    "rota.durable.sync": ("SyncDurableContext",),
    "rota.errors": (
        "CallFailed",
        "ConfigError",
        "DuplicateJob",
        "EventLoopRunning",
        "Fatal",
        "HistoryNotKept",
        "InvalidArguments",
        "JobError",
        "JobStopped",
        "KeyConflict",
        "LeaseLost",
        "NotFound",
        "OnceNotKept",
        "OnceUnknown",
        "PayloadTooLarge",
        "PersonErased",
        "QueueFull",
        "ResultUnavailable",
        "RetryAfter",
        "RotaError",
        "RunCancelled",
        "SchemaMismatch",
        "StepFailed",
        "StoreUnavailable",
        "SubmitError",
        "UnfitArguments",
        "UnknownTask",
        "WaitTimedOut",
    ),
    "rota.handle": ("JobFailed", "JobHandle"),
    "rota.lifecycle": ("State",),
    "rota.middleware": ("INJECTED", "Injected"),
    "rota.model": (
        "Attempt",
        "Event",
        "Failure",
        "Job",
        "NodeStatus",
        "QueueStatus",
        "Retry",
        "ShardStatus",
        "Takeover",
    ),
    "rota.core.time.status": ("Audit", "OccurrenceStatus", "ScheduleStatus"),
    "rota.submission": ("Submission",),
    "rota.task": ("Task",),
    "rota.run_handle": ("RunFailed", "RunHandle"),
    "rota.workflow": ("Workflow",),
    "rota.node": ("Node",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


if not TYPE_CHECKING:  # a type checker would take any name for one of ours

    def __getattr__(name: str) -> object:
        if name in _HOME_OF:
            try:
                home = importlib.import_module(_HOME_OF[name])
            except ModuleNotFoundError as error:
                if not (error.name or "").startswith("rota."):
                    raise
                raise ImportError(
                    f"rota.{name} is not part of rota-client, which has rota.client alone: "
                    "`pip install rota` instead"
                ) from None
            found = globals()[name] = getattr(home, name)
            return found
        if not name.startswith("_"):
            try:
                return importlib.import_module(f"rota.{name}")
            except ModuleNotFoundError as error:
                if error.name != f"rota.{name}":
                    raise
        raise AttributeError(f"module 'rota' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
