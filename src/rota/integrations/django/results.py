"""Jobs as Django's task results."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.utils.module_loading import import_string

from rota.integrations.django import project
from rota.integrations.django.calls import HEADER, enqueued_at, split
from rota.integrations.django.interface import TaskResultDoesNotExist, base
from rota.model import RESULT_DROPPED, Job

_STATUSES = {
    "running": base.TaskResultStatus.RUNNING, "succeeded": base.TaskResultStatus.SUCCESSFUL,
    "failed": base.TaskResultStatus.FAILED, "cancelled": base.TaskResultStatus.FAILED,
    "skipped": base.TaskResultStatus.FAILED,
}  # fmt: skip
# Errors of Rota's that are recorded without a module, because no exception was raised.
_OWN_ERRORS = {
    "NodeLost": "rota.errors.LeaseLost", "Quarantined": "rota.errors.ProcessDied",
    "Interrupted": "rota.errors.JobStopped", RESULT_DROPPED: "rota.errors.ResultUnavailable",
}  # fmt: skip


def to_result(job: Job, alias: str) -> Any:
    """Return the result of a job; raises TaskResultDoesNotExist if it is of no task of Django's."""
    header = job.headers.get(HEADER, {})
    task = _task_of(job, alias, header)
    args, kwargs = split(task, job.payload, header.get("positional", 0))
    started = [attempt.started_at for attempt in job.attempts if attempt.started_at is not None]
    if job.started_at is not None and (not started or started[-1] < job.started_at):
        started.append(job.started_at)
    result = base.TaskResult(
        task=task, id=str(job.id), status=_STATUSES.get(job.state, base.TaskResultStatus.READY),
        enqueued_at=enqueued_at(job.id), started_at=started[0] if started else None,
        finished_at=job.finished_at, last_attempted_at=started[-1] if started else None,
        args=args, kwargs=kwargs, backend=alias, errors=_errors(job), worker_ids=_workers(job),
    )  # fmt: skip
    object.__setattr__(result, "_return_value", job.result)
    return result


def _task_of(job: Job, alias: str, header: dict[str, Any]) -> Any:
    task = project.tasks_by_name.get(job.task)
    if task is None:
        try:
            task = import_string(job.task)
        except ImportError:
            task = None
    if not isinstance(task, base.Task):
        raise TaskResultDoesNotExist(
            f"job {job.id} is of {job.task!r}, which is no task of Django's"
        )
    run_after = header.get("run_after")
    return task.using(
        backend=alias, queue_name=job.queue, priority=job.priority,
        run_after=datetime.fromisoformat(run_after) if run_after else None,
    )  # fmt: skip


def _errors(job: Job) -> list[Any]:
    failures = [attempt.error for attempt in job.attempts if attempt.error is not None]
    if job.error is not None and (not failures or job.error.type != failures[-1].type):
        failures.append(job.error)
    errors = [
        base.TaskError(
            exception_class_path=_path(each.type), traceback=each.traceback or each.message
        )
        for each in failures
    ]
    if job.state in ("cancelled", "skipped"):
        stopped = f"the job was {job.state}"
        errors.append(
            base.TaskError(exception_class_path="rota.errors.JobStopped", traceback=stopped)
        )
    return errors


def _path(type_: str) -> str:
    if "." in type_:
        return type_
    return _OWN_ERRORS.get(type_, f"builtins.{type_}")


def _workers(job: Job) -> list[str]:
    """Return the node of each attempt. The oldest attempts of very many are not kept."""
    nodes = [attempt.node for attempt in job.attempts]
    if job.node is not None and job.state in ("running", "succeeded"):
        nodes.append(str(job.node))
    return ["unknown"] * (job.attempt - len(nodes)) + nodes
