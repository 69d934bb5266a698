"""The backend for Django's tasks.

Protocol. `enqueue` stores the job through Django's own connection: inside `atomic()` it is part of that
transaction, and exists if and only if it commits; outside it is a transaction of its own. No other
connection is opened. Results are read through the same connection, so that a transaction sees its own
jobs.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from django.db import connections, transaction
from django.utils import timezone

from rota.errors import ConfigError, InvalidArguments
from rota.integrations.django import project
from rota.integrations.django.calls import HEADER, enqueued_at, parameters_of, split
from rota.integrations.django.interface import (
    InvalidTask,
    InvalidTaskBackend,
    TaskResultDoesNotExist,
    backends,
    base,
    immediate,
    signals,
)
from rota.integrations.django.options import Options
from rota.integrations.django.results import to_result
from rota.model import Guarantee, Retry
from rota.store.drivers import find_job_through_sync
from rota.store.jobs import to_job
from rota.task import SubmitOptions, TaskOptions

_TASK_OPTIONS = ("needs", "guarantee", "retry", "timeout", "runner", "expected", "deadline",
                 "heartbeat_timeout")  # fmt: skip
_SUBMIT_OPTIONS = ("key", "delay", "tags", "max_attempts")


@dataclass(frozen=True, kw_only=True)
class RotaTask(base.Task):  # type: ignore[misc]
    """A task of Django's with Rota's options: of the task, for `@task`; of one job, for `using`."""

    needs: Sequence[str] | None = None
    guarantee: str | None = None
    retry: Retry | None = None
    timeout: float | None = None
    runner: str | None = None
    expected: float | None = None
    deadline: float | None = None
    heartbeat_timeout: float | None = None
    key: str | None = None
    delay: float | None = None
    tags: Sequence[str] = ()
    max_attempts: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        project.remember(self)

    def using(
        self, *, priority: int | None = None, queue_name: str | None = None,
        run_after: datetime | None = None, backend: str | None = None, **options: Any,
    ) -> RotaTask:  # fmt: skip
        """Return the task with other options: Django's, and `key`, `delay`, `tags`, `max_attempts`."""
        if unknown := sorted(set(options) - set(_SUBMIT_OPTIONS)):
            raise TypeError(
                f"using() has no option {unknown[0]!r}; known besides Django's: "
                f"{', '.join(_SUBMIT_OPTIONS)}. Options of the task itself belong to @task"
            )
        changes = {"priority": priority, "queue_name": queue_name, "run_after": run_after,
                   "backend": backend, **options}  # fmt: skip
        return replace(self, **{name: v for name, v in changes.items() if v is not None})

    def task_options(self) -> dict[str, Any]:
        """Return what `@task` said of Rota's options."""
        given = {name: getattr(self, name) for name in _TASK_OPTIONS}
        return {name: value for name, value in given.items() if value is not None}


class RotaBackend(backends.BaseTaskBackend):  # type: ignore[misc]
    """Stores Django's tasks as jobs of Rota, in the transaction of the caller."""

    task_class = RotaTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        try:
            self.rota_options = Options.read(alias, params)
        except ConfigError as error:
            raise InvalidTaskBackend(str(error)) from None

    def validate_task(self, task: Any) -> None:
        """Refuse what Rota can't run, when the task is made and when it is enqueued."""
        super().validate_task(task)
        _validate(task, self.rota_options.defaults)

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Store a job that calls the task, in the caller's transaction if there is one."""
        self.validate_task(task)
        app, ours = project.app_of(self.alias), project.rota_task(self.alias, task)
        database = self.rota_options.database
        options = self._submit_options(task, len(args), connections[database])
        # Checked before a transaction is begun: a refusal must not mark it for rollback.
        job = app.rota.submissions.new_call(ours, options, tuple(args), dict(kwargs))
        inside = connections[database].in_atomic_block
        with contextlib.nullcontext() if inside else transaction.atomic(using=database):
            handle = app.rota.submissions.submit_job_sync(job, options)
        if handle.existed:  # its key had named it before: it may have run
            return self.get_result(str(handle.id))
        result = self._stored(task, handle.id, len(args), msgspec.json.decode(job.payload))
        signals.task_enqueued.send(type(self), task_result=result)
        return result

    def _submit_options(self, task: Any, positional: int, connection: Any) -> SubmitOptions:
        header: dict[str, Any] = {"positional": positional} if positional else {}
        run_after = task.run_after
        if run_after is not None:
            if timezone.is_naive(run_after):
                run_after = timezone.make_aware(run_after)
            header["run_after"] = run_after.isoformat()
        own = {name: getattr(task, name, None) for name in _SUBMIT_OPTIONS}
        return SubmitOptions.checked(
            at=run_after, queue=task.queue_name, priority=task.priority, connection=connection,
            headers={HEADER: header} if header else None,
            **{name: value for name, value in own.items() if value is not None},
        )  # fmt: skip

    def _stored(self, task: Any, id: UUID, positional: int, payload: Mapping[str, Any]) -> Any:
        args, kwargs = split(task, payload, positional)
        return base.TaskResult(
            task=task, id=str(id), status=base.TaskResultStatus.READY, enqueued_at=enqueued_at(id),
            started_at=None, finished_at=None, last_attempted_at=None, args=args, kwargs=kwargs,
            backend=self.alias, errors=[], worker_ids=[],
        )  # fmt: skip

    def get_result(self, result_id: str) -> Any:
        """Return the result of a task as Django's connection sees it."""
        app = project.app_of(self.alias)
        try:
            id = UUID(result_id)
        except (TypeError, ValueError):
            raise TaskResultDoesNotExist(result_id) from None
        connection, settings = connections[self.rota_options.database], app.settings
        row = find_job_through_sync(connection, settings.namespace, id, settings.schema)
        if row is None:
            raise TaskResultDoesNotExist(result_id)
        return to_result(to_job(row, app.connector.encryption), self.alias)

    def check(self, **kwargs: Any) -> list[Any]:
        """Check the settings of this backend."""
        from rota.integrations.django.checks import check_backend

        return check_backend(self.rota_options)


def _validate(task: Any, defaults: Mapping[str, Any]) -> None:
    if "ctx" in parameters_of(task):
        raise InvalidTask(
            f"{task.module_path}: a parameter is named 'ctx', which is Rota's word for its own "
            "context; give it another name (Django's context is 'context')"
        )
    given = task.task_options() if isinstance(task, RotaTask) else {}
    try:
        options = TaskOptions.checked(**{**defaults, **given})
        if isinstance(task, RotaTask):
            SubmitOptions.checked(**{
                name: value for name in _SUBMIT_OPTIONS if (value := getattr(task, name)) is not None
            })  # fmt: skip
    except (ConfigError, InvalidArguments) as error:
        raise InvalidTask(f"{task.module_path}: {error}") from None
    is_async = inspect.iscoroutinefunction(task.func)
    if options.guarantee is Guarantee.EXACTLY_ONCE and is_async:
        raise InvalidTask(
            f"{task.module_path}: exactly_once needs a plain function, because the ORM's "
            "transaction belongs to a thread; remove `async`"
        )
    if task.run_after is not None and getattr(task, "delay", None) is not None:
        raise InvalidTask(f"{task.module_path}: give run_after or delay, not both")


class ImmediateBackend(immediate.ImmediateBackend):  # type: ignore[misc]
    """Runs tasks where they are enqueued, at once, for tests. Takes Rota's options and ignores them."""

    task_class = RotaTask
    supports_defer = True
