"""Tasks with Celery's methods: `delay`, `apply_async`, `self.retry`."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn
from uuid import UUID

from rota.context import Context, SyncContext
from rota.core.arguments import Arguments
from rota.errors import ConfigError, Fatal, InvalidArguments, JobError, RetryAfter
from rota.integrations.celery.results import AsyncResult, EagerResult
from rota.integrations.signatures import with_context, with_signature
from rota.model import Retry
from rota.task import Submissions, SubmitOptions, Task, TaskOptions

# Of apply_async: options of the message that have no counterpart, and nothing to lose.
_UNNOTICED = frozenset({
    "retry", "retry_policy", "serializer", "compression", "routing_key", "exchange", "delivery_mode",
    "ignore_result", "shadow", "argsrepr", "kwargsrepr", "add_to_parent",
})  # fmt: skip
_ADVICE = {
    "expires": "a job waits until a worker has time for it; look at its age in the task, or use "
    "deadline= of @app.task for an event",
    "link": "make it a chain: chain(task.s(...), next.s()).delay()",
    "link_error": "use a workflow with a step whose rule is one_failed, or app.on_error",
    "chord": "use chord([...], callback)",
    "producer": "leave it out: there is no broker",
}
_UNLIMITED = 32_000


class NotMapped(ConfigError):
    """Raised for something of Celery's that has no counterpart in Rota. The message says what to do."""


class MaxRetriesExceededError(Fatal):
    """Raised by `self.retry()` without `exc` when the task has no retries left."""


class Ignore(JobError):
    """Celery's way to leave a task without a result. Here the task ends, and its result is None."""


class Reject(Fatal):
    """Celery's way to give a message up: the job fails and is not tried again."""


class Request:
    """The call of a bound task: `self.request`."""

    def __init__(self, ctx: Context | SyncContext | None, args: Any, kwargs: Any) -> None:
        self.id = str(ctx.job.id) if ctx is not None else None
        self.retries = ctx.attempt - 1 if ctx is not None else 0
        self.args = list(args)
        self.kwargs = dict(kwargs)
        self.called_directly = ctx is None
        self.headers = dict(ctx.job.headers) if ctx is not None else {}
        self.eta = ctx.job.due_at if ctx is not None else None


class Bound:
    """The `self` of a task with ``bind=True``."""

    def __init__(
        self, task: CeleryTask, ctx: Context | SyncContext | None, request: Request
    ) -> None:
        self._task = task
        self.rota = ctx  # Rota's own context: once(), heartbeat(), token
        self.request = request

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def retry(
        self, args: Any = None, kwargs: Any = None, exc: BaseException | None = None,
        countdown: float | None = None, eta: datetime | None = None, max_retries: int | None = None,
        throw: bool = True, **options: Any,
    ) -> Any:  # fmt: skip
        """Try the task again later. Raises, as in Celery; when no retries are left it raises `exc`."""
        if args is not None or kwargs is not None:
            raise NotMapped(
                "self.retry(args=, kwargs=): a job keeps its arguments. Submit another one instead"
            )
        allowed = self._task.max_retries
        if max_retries is not None:
            if allowed is not None and max_retries > allowed:
                raise NotMapped(
                    f"self.retry(max_retries={max_retries}) is above that of the task ({allowed}): "
                    f"declare the task with max_retries={max_retries}"
                )
            allowed = max_retries
        if allowed is not None and self.request.retries >= allowed:
            self._give_up(exc)
        if eta is not None:  # a delay is what can be asked for: by this node's clock, as in Celery
            countdown = max((_aware(eta) - datetime.now(UTC)).total_seconds(), 0.0)  # noqa: TID251
        if countdown is None:
            countdown = self._task.default_retry_delay
        again = RetryAfter(float(countdown), str(exc) if exc is not None else "")
        if throw:
            raise again from exc
        return again

    def _give_up(self, exc: BaseException | None) -> NoReturn:
        if exc is not None:
            raise exc
        raise MaxRetriesExceededError(
            f"task {self._task.name} was tried {self.request.retries + 1} times"
        )

    def update_state(self, task_id: Any = None, state: str = "", meta: Any = None) -> None:
        """Report progress: `current` and `total` of `meta`, and `state`, as Rota's progress."""
        if self.rota is not None:
            known = meta if isinstance(meta, Mapping) else {}
            done, total = known.get("current", 0), known.get("total")
            self.rota.progress(float(done), None if total is None else float(total), state)


def _aware(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


class CeleryTask(Task[..., Any]):
    """A task of Rota's with Celery's methods."""

    def __init__(
        self, submissions: Submissions, function: Callable[..., Any], name: str, app: Any, *,
        bind: bool, options: TaskOptions, max_retries: int | None, default_retry_delay: float,
    ) -> None:  # fmt: skip
        self.run, self.app, self.bind = function, app, bind
        self.max_retries = max_retries
        self.default_retry_delay = default_retry_delay
        super().__init__(submissions, _wrapped(self, function), name, options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function here, as in Celery."""
        return self.run(*self._self(None, args, kwargs), *args, **kwargs)

    def _self(self, ctx: Any, args: Any, kwargs: Any) -> tuple[Any, ...]:
        return (Bound(self, ctx, Request(ctx, args, kwargs)),) if self.bind else ()

    def execute(self, ctx: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call the function for a job."""
        try:
            return self.run(*self._self(ctx, args, kwargs), *args, **kwargs)
        except Ignore:
            return None

    def delay(self, *args: Any, **kwargs: Any) -> AsyncResult | EagerResult:
        """Submit the task."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None,
        task_id: str | None = None, *, countdown: float | None = None,
        eta: datetime | None = None, queue: str | None = None, priority: int | None = None,
        headers: dict[str, Any] | None = None, time_limit: float | None = None,
        soft_time_limit: float | None = None, connection: Any = None, **options: Any,
    ) -> AsyncResult | EagerResult:  # fmt: skip
        """Submit the task with options. `connection`: your own transaction, which Celery has not.

        `task_id` becomes the idempotency key: the same one again is the same job.
        """
        _refuse(options)
        args, kwargs = tuple(args or ()), dict(kwargs or {})
        if self.app.conf.task_always_eager:
            return self.apply(args, kwargs)
        chosen = SubmitOptions.checked(
            at=None if eta is None else _aware(eta), delay=countdown, queue=queue or self._routed(),
            priority=priority, key=task_id, headers=headers, timeout=soft_time_limit or time_limit,
            connection=connection,
        )  # fmt: skip
        handle = self._submissions.submit_call_sync(self, chosen, args, kwargs)
        return AsyncResult(handle.id, app=self.app, handle=handle)

    def _routed(self) -> str | None:
        queue: str | None = self.app.conf.queue_of(self.name)
        return queue

    def apply(
        self, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None, **_: Any
    ) -> EagerResult:
        """Run the task here, at once. It is not tried again."""
        try:
            return EagerResult(self(*(args or ()), **dict(kwargs or {})), None)
        except Exception as error:  # noqa: BLE001 - it is the result
            return EagerResult(None, error)

    def signature(self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        return self.s(*args, **dict(kwargs or {}))

    subtask = signature

    def AsyncResult(self, task_id: str | UUID) -> AsyncResult:  # noqa: N802 - Celery's name
        return AsyncResult(task_id, app=self.app)


def _refuse(options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        if value is None or name in _UNNOTICED:
            continue
        if name in _ADVICE:
            raise NotMapped(f"apply_async({name}=...): {_ADVICE[name]}")
        raise InvalidArguments(f"apply_async() has no option {name!r} here")


def _wrapped(task: CeleryTask, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that Rota runs: without `self`, with `ctx`."""
    parameters = dict(inspect.signature(function).parameters)
    if task.bind:
        parameters.pop(next(iter(parameters), ""), None)
    if "ctx" in parameters:
        raise ConfigError(
            f"task {function.__name__!r} has a parameter named 'ctx', which is Rota's word for its own "
            "context: give it another name"
        )

    def run(*args: Any, ctx: SyncContext, **kwargs: Any) -> Any:
        return task.execute(ctx, args, kwargs)

    try:
        hints = typing.get_type_hints(function, include_extras=True)
        hints = {name: hints.get(name, Any) for name in parameters}
        Arguments(with_signature(lambda: None, parameters, hints), ())
    except (ConfigError, NameError, TypeError):
        hints = {}  # of types that JSON doesn't carry: for readers, as in Celery
    made: Callable[..., Any] = with_context(run, function, parameters, hints, SyncContext)
    return made


def retry_of(
    *, max_retries: int | None, default_retry_delay: float, autoretry_for: Sequence[Any],
    dont_autoretry_for: Sequence[Any], retry_backoff: bool | float, retry_backoff_max: float,
    retry_jitter: bool, retry_kwargs: Mapping[str, Any] | None,
) -> tuple[Retry, int | None, float]:  # fmt: skip
    """Return the policy of a task, its `max_retries` and its `default_retry_delay`.

    Celery tries again what asks for it (`self.retry`), and what `autoretry_for` names; nothing else.
    """
    more = dict(retry_kwargs or {})
    max_retries = more.pop("max_retries", max_retries)
    delay = float(more.pop("countdown", default_retry_delay))
    if more:
        raise NotMapped(f"retry_kwargs: {min(more)!r} has no counterpart; use max_retries")
    attempts = _UNLIMITED if max_retries is None else min(int(max_retries) + 1, _UNLIMITED)
    growing = bool(retry_backoff)
    base = float(retry_backoff) if growing else delay
    policy = Retry(
        max_attempts=attempts, base=base, factor=2.0 if growing else 1.0,
        cap=float(retry_backoff_max) if growing else max(delay, 0.0),
        jitter=0.5 if growing and retry_jitter else 0.0,
        only_on=(RetryAfter, *autoretry_for), never_on=tuple(dont_autoretry_for),
    )  # fmt: skip
    return policy, max_retries, delay


def seconds(value: float | timedelta | None) -> float | None:
    return value.total_seconds() if isinstance(value, timedelta) else value
