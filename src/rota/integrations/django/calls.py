"""Calls of Django's tasks, where Rota runs them: the arguments, the context, the signals.

The payload of a job has the arguments by name, so that forms, REST and schedules can make such jobs,
too. How many were given by position, and the moment to run after, are in the header `django`.
"""

from __future__ import annotations

import inspect
import logging
import os
import socket
import sys
import traceback
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
from django.db import connections
from django.utils import timezone

from rota.context import Context, SyncContext
from rota.core.arguments import Arguments
from rota.core.codec import encode_hook
from rota.core.lifecycle import may_retry
from rota.errors import ConfigError, Fatal
from rota.integrations.django.interface import base, signals
from rota.integrations.signatures import with_context, with_signature
from rota.model import Guarantee
from rota.worker.runners.results import failure_outcome

log = logging.getLogger("rota.django")

HEADER = "django"
_VAR_POSITIONAL = inspect.Parameter.VAR_POSITIONAL


def parameters_of(task: Any) -> dict[str, inspect.Parameter]:
    """Return what callers give: the parameters of the function but for the context."""
    found = dict(inspect.signature(task.func).parameters)
    if task.takes_context:
        found.pop("context", None)
    return found


def function_for(task: Any, alias: str) -> Callable[..., Any]:
    """Return the function that Rota runs for a task of Django's."""
    if inspect.iscoroutinefunction(task.func):

        async def run_coroutine(*args: Any, ctx: Context, **kwargs: Any) -> Any:
            return await call_async(task, alias, ctx, args, kwargs)

        return _described(run_coroutine, task, Context)

    def run(*args: Any, ctx: SyncContext, **kwargs: Any) -> Any:
        return call(task, alias, ctx, args, kwargs)

    return _described(run, task, SyncContext)


def _described(function: Callable[..., Any], task: Any, context: type) -> Callable[..., Any]:
    """Give a function the signature of the task's, by which arguments are checked."""
    parameters = parameters_of(task)
    hints = _hints(task, parameters)
    made: Callable[..., Any] = with_context(function, task.func, parameters, hints, context)
    return made


def _hints(task: Any, parameters: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    """Return the annotations that Rota can check; none if there is one that has no JSON form.

    Django's tasks take JSON. An annotation that says something else is for readers, and no error.
    """
    try:
        hints = typing.get_type_hints(task.func, include_extras=True)
        hints = {name: hints.get(name, Any) for name in parameters}
        Arguments(with_signature(lambda: None, parameters, hints), ())
    except (ConfigError, NameError, TypeError):
        return {}
    return hints


def split(
    task: Any, payload: Mapping[str, Any], positional: int
) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments as they were given: by position, and by name."""
    rest: dict[str, Any] = dict(payload)
    args: list[Any] = []
    for name, parameter in parameters_of(task).items():
        if len(args) >= positional or name not in rest:
            break
        if parameter.kind is _VAR_POSITIONAL:
            args.extend(rest.pop(name))
        else:
            args.append(rest.pop(name))
    return args, rest


def enqueued_at(id: UUID) -> datetime:
    """Return when a job was enqueued, by the time inside its id."""
    return datetime.fromtimestamp((id.int >> 80) / 1000, UTC)


# -- where the handler runs


def _close_old_connections() -> None:
    """As Django's own, around each request. One with an open transaction is left alone."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()


def call(task: Any, alias: str, ctx: SyncContext, args: Sequence[Any], kwargs: Any) -> Any:
    """Call a plain function, with connections that work and Django's signals."""
    _close_old_connections()
    try:
        running = _begin(task, alias, ctx, args, kwargs)
        try:
            value = task.func(*_first(task, running, ctx), *args, **kwargs)
        except Exception as error:
            _failed(running, alias, ctx, error)
            raise
        _succeeded(running, value)
        return value
    finally:
        _close_old_connections()


async def call_async(task: Any, alias: str, ctx: Context, args: Sequence[Any], kwargs: Any) -> Any:
    """Call a coroutine, with Django's signals."""
    running = _begin(task, alias, ctx, args, kwargs)
    try:
        value = await task.func(*_first(task, running, ctx), *args, **kwargs)
    except Exception as error:
        _failed(running, alias, ctx, error)
        raise
    _succeeded(running, value)
    return value


class RotaTaskContext(base.TaskContext):  # type: ignore[misc]
    """The context of a task that takes one. `rota` is Rota's own: once(), progress(), heartbeat()."""

    rota: Context | SyncContext


def _first(task: Any, running: Any, ctx: Any) -> tuple[Any, ...]:
    if not task.takes_context:
        return ()
    context = RotaTaskContext(task_result=running)
    object.__setattr__(context, "rota", ctx)
    return (context,)


def _begin(task: Any, alias: str, ctx: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    given = ctx.job.headers.get(HEADER, {}).get("positional", 0)
    names = [name for name, _ in zip(parameters_of(task), args, strict=False)]
    by_name = {**dict(zip(names, args, strict=False)), **kwargs}
    shown_args, shown_kwargs = (list(args), dict(kwargs)) if args else split(task, by_name, given)
    now = timezone.now()
    running = base.TaskResult(
        task=task, id=str(ctx.job.id), status=base.TaskResultStatus.RUNNING,
        enqueued_at=enqueued_at(ctx.job.id), started_at=now, last_attempted_at=now, finished_at=None,
        args=_plain(shown_args), kwargs=_plain(shown_kwargs), backend=alias, errors=[],
        worker_ids=[f"{socket.gethostname()}:{os.getpid()}"] * ctx.attempt,
    )  # fmt: skip
    _send(signals.task_started, running)
    return running


def _plain(value: Any) -> Any:
    """Return JSON: arguments were decoded by their annotations."""
    return msgspec.to_builtins(value, enc_hook=encode_hook)


def _succeeded(running: Any, value: Any) -> None:
    object.__setattr__(running, "_return_value", value)
    object.__setattr__(running, "finished_at", timezone.now())
    object.__setattr__(running, "status", base.TaskResultStatus.SUCCESSFUL)
    _send(signals.task_finished, running)


def _failed(running: Any, alias: str, ctx: Any, error: Exception) -> None:
    """Tell receivers that the task has failed, unless it will be tried again."""
    from rota.integrations.django.project import rota_task

    options = rota_task(alias, running.task).options_
    again = (
        not isinstance(error, Fatal)
        and options.guarantee is not Guarantee.AT_MOST_ONCE
        and ctx.attempt < ctx.job.max_attempts
        and may_retry(options.retry, failure_outcome(error).failure)
    )
    if again:
        return
    kind = type(error)
    text = "".join(traceback.format_exception(*sys.exc_info()))
    running.errors.append(
        base.TaskError(
            exception_class_path=f"{kind.__module__}.{kind.__qualname__}", traceback=text
        )
    )
    object.__setattr__(running, "finished_at", timezone.now())
    object.__setattr__(running, "status", base.TaskResultStatus.FAILED)
    _send(signals.task_finished, running)


def _send(signal: Any, result: Any) -> None:
    """Send a signal. A receiver that raises must not change the outcome of the task."""
    from rota.integrations.django.backend import RotaBackend

    for receiver, answer in signal.send_robust(RotaBackend, task_result=result):
        if isinstance(answer, Exception):
            log.error("receiver %r of a task's signal raised", receiver, exc_info=answer)
