"""A report on a Celery app: each task, each entry of Beat, each setting without a counterpart.

Reads the app that you have now, made by Celery itself. Celery is not imported here.
"""

from __future__ import annotations

import inspect
from typing import Any, Literal

import msgspec

from rota.errors import ConfigError
from rota.files.celery_beat import read_beat
from rota.integrations.celery.tasks import retry_of

Verdict = Literal["same", "changed", "by hand"]

_SETTINGS = {
    "broker_url": "there is no broker: ROTA_DATABASE_URL names PostgreSQL",
    "result_backend": "results are kept with their jobs, for retention_days",
    "task_annotations": "set the options on the tasks themselves",
    "task_create_missing_queues": "queues need no declaration",
    "worker_prefetch_multiplier": "workers take as much as they can soon run",
    "worker_max_tasks_per_child": "child processes are not replaced by count",
    "worker_max_memory_per_child": "child processes are not replaced by their memory",
    "broker_transport_options": "there is no broker, and no visibility timeout",
    "beat_scheduler": "every node with the role scheduler fires schedules; there is no single Beat",
}


class Finding(msgspec.Struct, frozen=True):
    """A line of the report. `by hand`: it has to be changed."""

    subject: str
    verdict: Verdict
    message: str


def report(app: Any) -> list[Finding]:
    """Return what becomes of the tasks, the schedules and the settings of a Celery app."""
    if hasattr(app, "loader"):
        app.loader.import_default_modules()
        app.finalize()
    own = {name: task for name, task in app.tasks.items() if not name.startswith("celery.")}
    found = [finding for name in sorted(own) for finding in _task(name, own[name])]
    functions = {name: task.run for name, task in own.items() if hasattr(task, "run")}
    beat = read_beat(app.conf.beat_schedule or {}, str(app.conf.timezone or "UTC"), functions)
    for name, spec in beat.schedules.items():
        found.append(
            Finding(f"schedule {name}", "same", f"{msgspec.to_builtins(spec.rule)} {spec.tz}")
        )
    found += [Finding(remark.place, "changed", remark.message) for remark in beat.warnings]
    found += [Finding(remark.place, "by hand", remark.message) for remark in beat.bad]
    changed = getattr(app.conf, "changes", {})
    for name, message in _SETTINGS.items():
        if changed.get(name):
            found.append(Finding(f"conf.{name}", "changed", message))
    return found


def _task(name: str, task: Any) -> list[Finding]:
    subject, found = f"task {name}", []

    def note(verdict: Verdict, message: str) -> None:
        found.append(Finding(subject, verdict, message))

    run = inspect.unwrap(getattr(task, "run", task))
    if "ctx" in inspect.signature(run).parameters:
        note("by hand", "the parameter ctx needs another name: it is Rota's word for its context")
    if getattr(task, "serializer", "json") not in ("json", None):
        note("by hand", f"serializer {task.serializer}: arguments and results are JSON here")
    base = type(task).__mro__[1].__name__
    if base not in ("Task", "DjangoTask", "object"):
        note(
            "by hand",
            f"its class {base}: put what it does around the function, or use app.on_error",
        )
    if getattr(task, "rate_limit", None):
        note("by hand", f"rate_limit {task.rate_limit}: give its queue a limit instead")
    if getattr(task, "expires", None):
        note("changed", "expires: a job waits until a worker has time for it")
    if not getattr(task, "acks_late", False):
        note("changed", "early ack: a crash lost the task. Here it runs again; "
             "guarantee='at_most_once' keeps the old behaviour")  # fmt: skip
    try:
        policy, *_ = retry_of(
            max_retries=getattr(task, "max_retries", 3),
            default_retry_delay=getattr(task, "default_retry_delay", 180),
            autoretry_for=getattr(task, "autoretry_for", ()),
            dont_autoretry_for=getattr(task, "dont_autoretry_for", ()),
            retry_backoff=getattr(task, "retry_backoff", False),
            retry_backoff_max=getattr(task, "retry_backoff_max", 600),
            retry_jitter=getattr(task, "retry_jitter", True),
            retry_kwargs=getattr(task, "retry_kwargs", None),
        )
        note("same", f"{policy.max_attempts} attempts at most")
    except ConfigError as error:
        note("by hand", str(error))
    return found
