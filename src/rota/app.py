"""App: tasks, and submitting them."""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Concatenate, overload

import msgspec

from rota.config import Settings, check_open_task
from rota.context import ErrorHook
from rota.core.arguments import Limits, encode_payload
from rota.core.codec import ResultReader
from rota.core.time.schedule import compile_schedule
from rota.errors import ConfigError, InvalidArguments, KeyConflict, UnknownTask
from rota.handle import JobHandle
from rota.lib import tracing
from rota.lib.ids import new_id, new_ids
from rota.lib.sync_bridge import portal
from rota.model import Guarantee, GuaranteeName, Retry, RunnerName
from rota.operations.connection import Door
from rota.operations.control import Events, Jobs, Nodes, Queues
from rota.operations.endpoint_definition import Endpoint
from rota.operations.endpoint_push import EndpointTask
from rota.operations.endpoints import Endpoints
from rota.operations.schedules import Change, Schedules, make_spec
from rota.operations.webhooks import Webhooks
from rota.store.drivers import (
    ask_encrypted,
    ask_encrypted_sync,
    submit_through,
    submit_through_sync,
)
from rota.store.rows import Bulk, NewJob, Submitted
from rota.task import P, R, SubmitOptions, Task, TaskOptions

if TYPE_CHECKING:
    from rota.decorators import AnyContext, DeclaredTask, ScheduleDecorator, TaskDecorator, Untyped

log = logging.getLogger("rota.submit")

_COPY_FROM = 200  # so many jobs at once are worth a COPY
_COPY_CHUNK = 10_000
_HEADER_LIMITS = Limits(16_384, 64)


def _module_name(scope: Mapping[str, Any]) -> str:
    name = str(scope.get("__name__") or "app")
    if name != "__main__":
        return name
    # As `rota start` would import it.
    return PurePath(str(scope.get("__file__") or "app")).stem


class App(Door):
    """The tasks of an application, and its door to the database.

    Settings come from the environment (``ROTA_DATABASE_URL`` and so on) unless given here. Without a
    database URL the embedded PostgreSQL is started and used. Nothing is opened before the first use.
    """

    def __init__(self, settings: Settings | None = None, **given: Any) -> None:
        if settings is not None and given:
            raise ConfigError("give App either settings or single settings by name, not both")
        super().__init__(settings or Settings.read(**given))
        # Of whoever makes it: two applications in one namespace have different ones.
        self._module = _module_name(sys._getframe(1).f_globals)
        self.tasks: dict[str, Task[..., Any]] = {}
        self.error_hooks: list[ErrorHook] = []
        self.jobs = Jobs(self)
        self.queues = Queues(self)
        self.nodes = Nodes(self)
        self.schedules = Schedules(self)
        self.events = Events(self)
        self.webhooks = Webhooks(self)
        self.endpoints = Endpoints(self)

    @property
    def name(self) -> str:
        """By which its declared schedules are known: the setting `app_name`, else its module."""
        return self.settings.app_name or self._module

    # -- tasks

    @overload
    def task(self, function: Callable[Concatenate[Untyped, P], Any], /) -> Task[..., Any]: ...

    @overload
    def task(
        self, function: Callable[Concatenate[AnyContext, P], Coroutine[Any, Any, R]], /
    ) -> DeclaredTask[P, R, Concatenate[AnyContext, P], Coroutine[Any, Any, R]]: ...

    @overload
    def task(
        self, function: Callable[Concatenate[AnyContext, P], R], /
    ) -> DeclaredTask[P, R, Concatenate[AnyContext, P], R]: ...

    @overload
    def task(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> DeclaredTask[P, R, P, Coroutine[Any, Any, R]]: ...

    @overload
    def task(self, function: Callable[P, R], /) -> DeclaredTask[P, R, P, R]: ...

    @overload
    def task(
        self,
        *,
        name: str | None = None,
        queue: str = "default",
        needs: Sequence[str] = (),
        priority: int = 0,
        guarantee: GuaranteeName = "at_least_once",
        retry: Retry | None = None,
        timeout: float | None = None,
        runner: RunnerName | None = None,
        expected: float | None = None,
        deadline: float | None = None,
        heartbeat_timeout: float | None = None,
    ) -> TaskDecorator: ...

    def task(  # type: ignore[misc] # mypy can't match a ParamSpec with its absence
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        needs: Sequence[str] = (),
        priority: int = 0,
        guarantee: GuaranteeName = "at_least_once",
        retry: Retry | None = None,
        timeout: float | None = None,
        runner: RunnerName | None = None,
        expected: float | None = None,
        deadline: float | None = None,
        heartbeat_timeout: float | None = None,
    ) -> Any:
        """Register a function or coroutine function as a task.

        Args:
            name: how it is called in the database and in other languages; its own name by default.
            queue: where its jobs wait.
            needs: capabilities that a worker must have to run it.
            priority: higher goes first; each point is worth a minute of waiting.
            guarantee: ``at_least_once``, ``at_most_once`` or ``exactly_once``.
            retry: when and how often a failed attempt is repeated.
            timeout: seconds that an attempt may take before it is stopped. None: the maximum run time of
                the queue or of the installation (24 hours); ``math.inf``: no limit.
            runner: ``loop`` for coroutines, ``process`` (the default) or ``thread`` for functions.
            expected: seconds that a run should take; a longer one is an event. Learned if not given.
            deadline: seconds after its due time by which a job should have ended; else an event.
            heartbeat_timeout: seconds that the handler may go without a sign of life (`ctx.heartbeat()`,
                `ctx.progress()`, `ctx.once()`) before it is stopped.
        """
        options = TaskOptions(
            queue=queue,
            needs=(needs,) if isinstance(needs, str) else tuple(needs),
            priority=priority,
            guarantee=Guarantee.parse(guarantee),
            retry=retry or Retry(),
            timeout=timeout,
            runner=runner,
            expected=expected,
            deadline=deadline,
            heartbeat_timeout=heartbeat_timeout,
        )
        if function is not None:
            return self._register(function, name, options)
        return lambda function: self._register(function, name, options)

    def _register(
        self, function: Callable[..., Any], name: str | None, options: TaskOptions
    ) -> Task[..., Any]:
        return self._keep(Task(self, function, name or function.__name__, options))

    def _keep(self, task: Task[..., Any]) -> Task[..., Any]:
        if task.name in self.tasks:
            raise ConfigError(
                f"two tasks are named {task.name!r}: give one of them another name, "
                '@app.task(name="...")'
            )
        self.tasks[task.name] = task
        return task

    def endpoint(
        self,
        name: str,
        *,
        url: str,
        secret: str,
        queue: str = "default",
        needs: Sequence[str] = (),
        priority: int = 0,
        guarantee: GuaranteeName = "at_least_once",
        retry: Retry | None = None,
        timeout: float = 30.0,
        callback_timeout: float = 3600.0,
        expected: float | None = None,
        deadline: float | None = None,
    ) -> Task[..., Any]:
        """Register an HTTP endpoint as a task: its jobs are pushed there, signed, by this app's workers.

        Args:
            name: how the task is called.
            url: of http or https. Whether its address may be gone to is judged at each push.
            secret: what pushes are signed with, 16 to 200 characters.
            queue: where its jobs wait.
            needs: capabilities that a worker must have to push it.
            priority: higher goes first; each point is worth a minute of waiting.
            guarantee: ``at_least_once`` or ``at_most_once``.
            retry: when and how often a failed push is repeated.
            timeout: seconds for an answer.
            callback_timeout: seconds for the callback, after an answer of 202.
            expected: seconds that a run should take; a longer one is an event. Learned if not given.
            deadline: seconds after its due time by which a job should have ended; else an event.
        """
        options = TaskOptions(
            queue=queue, needs=(needs,) if isinstance(needs, str) else tuple(needs),
            priority=priority, guarantee=Guarantee.parse(guarantee), retry=retry or Retry(),
            runner="loop", expected=expected, deadline=deadline,
        )  # fmt: skip
        endpoint = Endpoint(
            name=name, url=url, secret=secret, options=options, timeout=timeout,
            callback_timeout=callback_timeout,
        )  # fmt: skip
        return self._keep(EndpointTask(self, endpoint))

    def on_error(self, hook: ErrorHook) -> ErrorHook:
        """Register a function to call with each attempt that fails: ``hook(job, error)``.

        ``@app.on_error`` on a plain function. `job` is a `JobInfo`; `error` is what the handler raised,
        and the hook is called where that happened: on the event loop, in the thread, in the child
        process. So it must be quick. For a timeout, a missing sign of life or a child process that died,
        it is called in the worker, with `TimedOut`, `HeartbeatTimeout` or `ProcessDied`. Whatever the
        hook raises is logged and changes nothing.
        """
        if not callable(hook) or inspect.iscoroutinefunction(hook):
            raise ConfigError("on_error takes a plain function of (job, error), not a coroutine")
        self.error_hooks.append(hook)
        return hook

    # -- schedules

    def cron(
        self, expression: str, *, name: str | None = None, **settings: Any
    ) -> ScheduleDecorator:
        """Run a function or a task by a cron expression. A scheduler stores it when it starts.

        Args:
            expression: 5 fields, 6 with seconds first, or ``@daily`` and the like.
            name: the schedule's name; the task's by default.
            settings: ``tz``, ``gap``, ``fold``, ``overlap``, ``catch_up``, ``spread``, ``jitter``,
                ``payload``, ``starts``, ``ends`` and the other fields of `ScheduleSpec`.
        """

        def declare(function: Any) -> Any:
            task = (
                function
                if isinstance(function, Task)
                else self._register(function, None, TaskOptions())
            )
            spec = make_spec(name or task.name, task.name, cron=expression, **settings)
            if spec.name in self.schedules.declared:
                raise ConfigError(f"two schedules are named {spec.name!r}")
            if not (spec.exclude or spec.include):  # named calendars are in the database
                compile_schedule(spec)
            self.schedules.declared[spec.name] = spec
            return task

        return declare

    async def schedule(self, name: str, task: Task[..., Any] | str, **settings: Any) -> Change:
        """Create a schedule, or change it from now on: 'created', 'updated' or 'unchanged'.

        Args:
            name: what it is called; unique in the namespace.
            task: the task to run, or its name.
            settings: one of ``cron``, ``every`` (``"15m"``), ``calendar`` (``"last business day of
                the month at 18:00"``) and ``rrule``; ``payload``; and the other fields of
                `ScheduleSpec`.
        """
        task_name = task.name if isinstance(task, Task) else task
        return await self.schedules.put(make_spec(name, task_name, **settings))

    # -- submitting

    async def submit(
        self, task: str, payload: Mapping[str, Any] | None = None, **options: Any
    ) -> JobHandle[Any]:
        """Submit by name. The task may live elsewhere: then what its nodes registered applies.

        A task that nobody has registered is accepted, because a deploy may be on its way: the handle's
        `warnings` and the log say so.
        """
        job, chosen = self._named_job(check_open_task(task), payload or {}, options)
        return await self._submit_named(job, chosen)

    def submit_sync(
        self, task: str, payload: Mapping[str, Any] | None = None, **options: Any
    ) -> JobHandle[Any]:
        """The same from synchronous code."""
        job, chosen = self._named_job(check_open_task(task), payload or {}, options)
        if chosen.connection is not None:
            return self._submit_one_sync(job, chosen)
        return portal.call(lambda: self._submit_named(job, chosen), "submit")

    async def _submit_named(self, job: NewJob, options: SubmitOptions) -> JobHandle[Any]:
        """Checked by what was registered, if the code isn't here. Not in callers' own transactions: they
        may not be allowed to read it."""
        if job.task in self.tasks or options.connection is not None:
            return await self._submit_one(job, options)
        signatures = await self.signatures()
        namespace = self.settings.namespace
        warnings = await signatures.check(namespace, job.task, bytes(job.payload))
        handle = await self._submit_one(job, options)
        if warnings:
            handle.warnings = warnings
            log.warning("job %s was accepted, but %s", handle.id, "; ".join(warnings))
            await signatures.note_unknown(namespace, job.task, handle.id)
        return handle

    async def submit_own(
        self, task: str, payload: Mapping[str, Any], **options: Any
    ) -> JobHandle[Any]:
        """Submit a job of a task that is Rota's own. For Rota alone."""
        job, chosen = self._named_job(task, payload, options)
        return await self._submit_one(job, chosen)

    def _named_job(
        self, name: str, payload: Mapping[str, Any], options: dict[str, Any]
    ) -> tuple[NewJob, SubmitOptions]:
        chosen = SubmitOptions.checked(**options)
        if not isinstance(payload, Mapping):
            raise InvalidArguments(
                f"task {name!r}: the payload must be a dict of argument names and values"
            )
        if known := self.tasks.get(name):
            encoded = known.arguments.encode((), dict(payload), self.limits)
            return self._new_job(known, chosen, encoded), chosen
        encoded = encode_payload(payload, self.limits, name)
        job = NewJob(id=new_id(), namespace=self.settings.namespace, task=name,
                     payload=msgspec.Raw(encoded))  # fmt: skip
        return _with_options(job, chosen), chosen

    async def _submit_call(
        self, task: Task[..., Any], options: SubmitOptions, args: Any, kwargs: Any
    ) -> JobHandle[Any]:
        payload = task.arguments.encode(args, kwargs, self.limits)
        return await self._submit_one(self._new_job(task, options, payload), options)

    def _submit_call_sync(
        self, task: Task[..., Any], options: SubmitOptions, args: Any, kwargs: Any
    ) -> JobHandle[Any]:
        payload = task.arguments.encode(args, kwargs, self.limits)
        return self._submit_one_sync(self._new_job(task, options, payload), options)

    async def _submit_one(self, job: NewJob, options: SubmitOptions) -> JobHandle[Any]:
        with tracing.submitting(job):
            return await self._store_one(job, options)

    async def _store_one(self, job: NewJob, options: SubmitOptions) -> JobHandle[Any]:
        if options.connection is not None:
            answers = await self._submit_through(options.connection, [job])
        else:
            answers = await (await self._open()).submitter.submit([job])
        return self._handles([job], answers)[0]

    def _submit_one_sync(self, job: NewJob, options: SubmitOptions) -> JobHandle[Any]:
        with tracing.submitting(job):
            if options.connection is None:
                return portal.call(lambda: self._store_one(job, options), "submit")
            answers = self._submit_through_sync(options.connection, [job])
            return self._handles([job], answers)[0]

    async def _submit_calls(
        self, task: Task[..., Any], options: SubmitOptions, calls: Iterable[Any]
    ) -> list[JobHandle[Any]]:
        if options.key is not None:
            raise InvalidArguments("submit_many can't give one key to many jobs")
        encode, limits = task.arguments.encode, self.limits
        payloads = [encode(*_as_call(call), limits) for call in calls]
        template = self._new_job(task, options, b"{}")
        if not payloads:
            return []
        with tracing.submitting(template, len(payloads)):
            return await self._store_many(Bulk(template, new_ids(len(payloads)), payloads), options)

    async def _store_many(self, bulk: Bulk, options: SubmitOptions) -> list[JobHandle[Any]]:
        if options.connection is not None:
            jobs = bulk.jobs()
            answers = await self._submit_through(options.connection, jobs)
            return self._handles(jobs, answers)
        store = (await self._open()).store
        if len(bulk.ids) >= _COPY_FROM:
            await store.copy_jobs(bulk)
            reader = self._reader_of(bulk.template.task)
            return [JobHandle(self, id, reader=reader) for id in bulk.ids]
        jobs = bulk.jobs()
        return self._handles(jobs, await store.submit_atomically(jobs))

    async def _submit_through(self, connection: Any, jobs: Sequence[NewJob]) -> list[Submitted]:
        """In the caller's transaction, asking nothing of any other connection."""
        schema, sealing = self.settings.schema, self.sealing
        if sealing.stale:
            sealing.learn(await ask_encrypted(connection, sealing.namespace, schema))
        return await submit_through(connection, sealing.jobs(jobs), schema)

    def _submit_through_sync(self, connection: Any, jobs: Sequence[NewJob]) -> list[Submitted]:
        schema, sealing = self.settings.schema, self.sealing
        if sealing.stale:
            sealing.learn(ask_encrypted_sync(connection, sealing.namespace, schema))
        return submit_through_sync(connection, sealing.jobs(jobs), schema)

    def _new_job(self, task: Task[..., Any], options: SubmitOptions, payload: bytes) -> NewJob:
        defaults = task.options_
        job = NewJob(
            id=new_id(),
            namespace=self.settings.namespace,
            task=task.name,
            payload=msgspec.Raw(payload),
            queue=defaults.queue,
            needs=defaults.needs,
            priority=defaults.priority,
            guarantee=int(defaults.guarantee),
            max_attempts=defaults.retry.max_attempts,
            timeout=defaults.timeout,
        )
        return _with_options(job, options)

    def _handles(
        self, jobs: Sequence[NewJob], answers: Sequence[Submitted]
    ) -> list[JobHandle[Any]]:
        for job, answer in zip(jobs, answers, strict=True):
            if answer.conflict:
                raise KeyConflict(job.key or "", str(answer.id))
        return [
            JobHandle(self, answer.id, answer.existed, self._reader_of(job.task))
            for job, answer in zip(jobs, answers, strict=True)
        ]

    def _reader_of(self, task: str) -> ResultReader | None:
        known = self.tasks.get(task)
        return None if known is None else known.result_reader

    @property
    def limits(self) -> Limits:
        return Limits(self.settings.max_payload_bytes, self.settings.max_payload_depth)

    def require_task(self, name: str) -> Task[..., Any]:
        try:
            return self.tasks[name]
        except KeyError:
            known = ", ".join(sorted(self.tasks)) or "none"
            raise UnknownTask(f"no task is named {name!r} here; known: {known}") from None


def _with_options(job: NewJob, options: SubmitOptions) -> NewJob:
    for field in ("at", "delay", "key", "priority", "queue", "needs", "max_attempts", "timeout"):
        if (value := getattr(options, field)) is not None:
            setattr(job, field, value)
    if headers := options.all_headers:
        job.headers = msgspec.Raw(encode_payload(headers, _HEADER_LIMITS, job.task, "header"))
    return job


def _as_call(call: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(call, dict):
        return (), call
    if isinstance(call, tuple):
        return call, {}
    return (call,), {}
