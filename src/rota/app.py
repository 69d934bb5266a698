"""App: tasks, and submitting them."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Concatenate, Self, overload

from rota.batching import BatchDecorator, gathered
from rota.config import Settings, check_name
from rota.core.keys import KeySource, OrderFailure
from rota.core.time.schedule import compile_schedule, make_spec
from rota.core.unique import ThrottleKeep, UniqueConflict, UniqueKeySource, UniqueScope
from rota.core.versions import Upgrade
from rota.core.workflow.model import EachName
from rota.durable.context import DurableContext
from rota.durable.function import DEFAULT_RETRY, DurableDecorator, DurableFunction
from rota.durable.sync import SyncDurableContext
from rota.errors import ConfigError, UnknownTask
from rota.extensions import Extensions
from rota.generators import GeneratorTask, Items, not_in_a_map
from rota.handle import JobHandle
from rota.model import GuaranteeName, Retry, RunnerName, SignalSent
from rota.operations.connection import Connector
from rota.operations.endpoint_push import EndpointTask
from rota.operations.map_streams import map_stream
from rota.operations.rota import Rota
from rota.operations.schedule_changes import Change
from rota.operations.sinks import SinkStart, make_sink
from rota.operations.triggers import Message, Start, make_trigger
from rota.run_handle import RunHandle
from rota.store.endpoints import StoredEndpoint
from rota.store.jobs import JobStore
from rota.store.migrate import Migrated
from rota.task import P, R, Task, TaskOptions
from rota.workflow import Workflow

if TYPE_CHECKING:
    from rota.decorators import AnyContext, DeclaredTask, TaskDecorator, Untyped
    from rota.sync import SyncApp


def _module_name(scope: Mapping[str, Any]) -> str:
    name = str(scope.get("__name__") or "app")
    if name != "__main__":
        return name
    # The name by which `rota start` would import it.
    return PurePath(str(scope.get("__file__") or "app")).stem


def _target(task: Task[..., Any] | Workflow | str) -> dict[str, Any]:
    """Return what a schedule of this runs, as fields of its definition."""
    if isinstance(task, Workflow | DurableFunction):
        return {"workflow": task.name}
    if isinstance(task, GeneratorTask):
        raise ConfigError(f"{not_in_a_map(task.name)}. Schedule the workflow")
    name = task.name if isinstance(task, Task) else task
    return {"task": name} if name else {}


class App(Extensions):
    """The tasks and schedules that an application declares.

    Settings come from the environment (``ROTA_DATABASE_URL`` and so on) unless given here. Without a
    database URL the embedded PostgreSQL is started and used. Nothing is opened before the first use.
    """

    def __init__(self, settings: Settings | None = None, **given: Any) -> None:
        if settings is not None and given:
            raise ConfigError("give App either settings or single settings by name, not both")
        super().__init__()
        # MODULE:VARIABLE by which child processes import it. None: the module that has it.
        self.reference: str | None = None
        self.connector = Connector(settings or Settings.read(**given))
        # The caller's module: two applications in one namespace have different ones.
        module = _module_name(sys._getframe(1).f_globals)
        self.rota = Rota(self.connector, self.tasks, module)
        self.rota.submissions.hooks = self.submit_hooks
        self.jobs = self.rota.jobs
        self.dead = self.rota.dead
        self.queues = self.rota.queues
        self.nodes = self.rota.nodes
        self.pools = self.rota.pools
        self.alerts = self.rota.alerts
        self.maintenance = self.rota.maintenance
        self.bulk = self.rota.bulk
        self.views = self.rota.views
        self.registry = self.rota.registry
        self.statistics = self.rota.statistics
        self.history = self.rota.history
        self.schedules = self.rota.schedules
        self.events = self.rota.events
        self.webhooks = self.rota.webhooks
        self.endpoints = self.rota.endpoints
        self.workflows = self.rota.workflows
        self.runs = self.rota.runs
        self.signals = self.rota.signals
        self.triggers = self.rota.triggers
        self.sinks = self.rota.sinks
        self.persons = self.rota.persons

    @functools.cached_property
    def sync(self) -> SyncApp:
        """The verbs of this app for synchronous code: ``app.sync.jobs.list()``. Threads may share it."""
        from rota.sync import SyncApp

        return SyncApp(self)

    @property
    def name(self) -> str:
        """The name of the application that declares the schedules: the setting `app_name`, or its
        module."""
        return self.rota.app_name

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
        concurrency: int | None = None,
        concurrency_key: KeySource | None = None,
        fairness_key: KeySource | None = None,
        rate: str | None = None,
        rate_burst: int | None = None,
        order_key: KeySource | None = None,
        order_failure: OrderFailure = "continue",
        version: int = 1,
        upgrade: Upgrade | None = None,
        unique: UniqueScope | float | timedelta | None = None,
        unique_key: UniqueKeySource | None = None,
        unique_conflict: UniqueConflict | None = None,
        debounce: float | timedelta | None = None,
        debounce_max: float | timedelta | None = None,
        throttle: float | timedelta | None = None,
        throttle_keep: ThrottleKeep | None = None,
        resources: Mapping[str, Any] | None = None,
        near: str | None = None,
        near_patience: float | None = None,
    ) -> TaskDecorator: ...

    def task(  # type: ignore[misc] # mypy can't match a ParamSpec with its absence
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        **options: Any,
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
            concurrency: how many of its jobs may run at a time, in the whole cluster.
            concurrency_key: the name of a parameter, or a function of the arguments, that gives each job
                a key. With it, `concurrency` and `rate` are for each key.
            rate: how many of its jobs may start in a period, in the whole cluster: ``100/minute``.
            rate_burst: how many of them may start at once; a tenth of a second's worth by default.
            fairness_key: as `concurrency_key`: in a queue with the policy ``fair`` each key has a share.
            order_key: as `concurrency_key`: jobs of a queue with the same key run one after another.
            order_failure: what a failed job does to those behind it: ``continue``, ``hold`` or ``drop``.
            version: of the arguments. It is written into each payload; raise it when they change.
            upgrade: called with the arguments of an older payload, as JSON has them, and its version;
                returns those of this version. What was submitted before there was a version has 1.
            unique: one job only, while it is ``waiting`` or ``unfinished``, or in so many seconds.
            unique_key: the name of a parameter, several names, or a function of the arguments, by which
                its jobs are unique, debounced or throttled; all arguments by default.
            unique_conflict: what a second submit does: ``return`` the first job (the default),
                ``refuse`` (`DuplicateJob`), or ``replace`` its arguments while it waits.
            debounce: seconds to run a job after the last submit, with the arguments of that.
            debounce_max: seconds after the first submit by which it runs all the same.
            throttle: seconds in which one job is stored; other submits get it back.
            throttle_keep: ``last``: of those others, the last one is kept for the end of the time.
            resources: what each of its jobs takes of its node: ``memory`` (``"2GB"``), ``cpu``, and
                amounts of your own. A node never runs more than it has.
            near: a label of nodes (``rota start --label``) that claim its jobs at once.
            near_patience: seconds after which other nodes may claim them, too (5).
        """
        checked = TaskOptions.checked(**options)
        if function is not None:
            return self._register(function, name, checked)
        return lambda function: self._register(function, name, checked)

    def batch_task(
        self, *, max_size: int = 100, max_wait: float = 1.0, name: str | None = None, **options: Any
    ) -> BatchDecorator:
        """Register a coroutine function that gets the arguments of several jobs at a time, as a task.

        Its parameters are lists with an entry for each job; a job is submitted with one entry. What it
        returns is None, or a list with a result for each job, in their order: an exception in a place of
        the list fails that job alone. What it raises fails all of them. Each job has its own attempts,
        retries and dead letter, takes a slot of its node, and counts for limits by itself.

        Args:
            max_size: jobs in one call at most; never more than the node's `concurrency`.
            max_wait: seconds that the first job waits for others.
            name: as for `task`, which explains the other options, too.
        """

        def register(function: Callable[..., Any]) -> Task[..., Any]:
            title = name or function.__name__
            slots = lambda: self.settings.concurrency  # noqa: E731
            handler = gathered(function, title, max_size, max_wait, slots, options)
            return self._register(handler, title, TaskOptions.checked(**options))

        return register

    @overload
    def generator(self, function: Callable[..., Items], /) -> GeneratorTask[...]: ...

    @overload
    def generator(
        self, function: None = None, /, *, name: str | None = None, **options: Any
    ) -> Callable[[Callable[..., Items]], GeneratorTask[...]]: ...

    def generator(
        self, function: Callable[..., Any] | None = None, /, *, name: str | None = None,
        **options: Any,
    ) -> Any:  # fmt: skip
        """Register a generator, or an async generator, whose items become the members of a map.

        It is a step of workflows, whose result is how many items there were: ``{"count": 1200}``. Maps
        that are over the step call their task for each item, once the generator has come to its end. It
        may yield millions: a worker stores them in pages. Options are those of `task`; it can't be
        exactly_once.
        """

        def register(function: Callable[..., Any]) -> Task[..., Any]:
            checked = TaskOptions.checked(**options)
            title = name or function.__name__
            return self._add(GeneratorTask(self.rota.submissions, function, title, checked))

        return register if function is None else register(function)

    def _register(
        self, function: Callable[..., Any], name: str | None, options: TaskOptions
    ) -> Task[..., Any]:
        return self._add(Task(self.rota.submissions, function, name or function.__name__, options))

    def _add(self, task: Task[..., Any]) -> Task[..., Any]:
        if task.name in self.tasks:
            raise ConfigError(
                f"two tasks are named {task.name!r}: give one of them another name, "
                '@app.task(name="...")'
            )
        self.tasks[task.name] = task
        self.wrap(task)
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
            url: an http or https URL. Its address is checked at every push.
            secret: signs the pushes; 16 to 200 characters.
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
        options = TaskOptions.checked(
            queue=queue, needs=needs, priority=priority, guarantee=guarantee, retry=retry,
            runner="loop", expected=expected, deadline=deadline,
        )  # fmt: skip
        endpoint = StoredEndpoint(
            name=name, url=url, secret=secret, timeout=timeout, callback_timeout=callback_timeout
        )
        return self._add(EndpointTask(self.rota, endpoint, options))

    def workflow(
        self, name: str, *, deadline: float | str | None = None,
        retention: float | str | None = None, description: str = "",
    ) -> Workflow:  # fmt: skip
        """Declare a workflow: a graph of steps, added by ``flow.step(task, ...)``.

        Args:
            name: how it is called; unique in the namespace.
            deadline: seconds (or ``"2h"``) after the start of a run at which it fails.
            retention: for how long ended runs are kept; by default as long as jobs.
            description: what it is for.
        """
        flow = Workflow(
            self.rota.runs, check_name("workflow", name), deadline=deadline, retention=retention,
            description=description,
        )  # fmt: skip
        if name in self.workflows.declared:
            raise ConfigError(f"two workflows are named {name!r}")
        self.workflows.declared[name] = flow
        return flow

    @overload
    def durable(
        self, function: Callable[Concatenate[DurableContext, P], Coroutine[Any, Any, R]], /
    ) -> DurableFunction[P, R]: ...

    @overload
    def durable(
        self, function: Callable[Concatenate[SyncDurableContext, P], R], /
    ) -> DurableFunction[P, R]: ...

    @overload
    def durable(
        self,
        *,
        name: str | None = None,
        version: int = 1,
        queue: str = "default",
        needs: Sequence[str] = (),
        priority: int = 0,
        retry: Retry | None = None,
        deadline: float | str | None = None,
        retention: float | str | None = None,
    ) -> DurableDecorator: ...

    def durable(  # type: ignore[misc] # mypy can't match a ParamSpec with its absence
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        version: int = 1,
        queue: str = "default",
        needs: Sequence[str] = (),
        priority: int = 0,
        retry: Retry | None = None,
        deadline: float | str | None = None,
        retention: float | str | None = None,
    ) -> Any:
        """Register a durable function: one that survives any crash, and may wait for days.

        It takes a `DurableContext` as ``ctx``, through which it does what must survive.

        Args:
            name: how it is called; its own name by default. Unique among tasks and workflows.
            version: of its code; ``ctx.version`` is the one that a run was started with.
            queue: where its jobs wait.
            needs: capabilities that a worker must have to run it.
            priority: higher goes first; each point is worth a minute of waiting.
            retry: what happens when the function itself raises; by default the run fails at once.
                Its steps have policies of their own.
            deadline: seconds (or ``"2h"``) after the start of a run at which it fails.
            retention: for how long ended runs are kept; by default as long as jobs.
        """
        options = TaskOptions.checked(
            queue=queue, needs=needs, priority=priority, retry=retry or DEFAULT_RETRY, runner="loop"
        )

        def declare(function: Callable[..., Any]) -> DurableFunction[..., Any]:
            called = name or function.__name__
            if called in self.workflows.declared:
                raise ConfigError(f"two workflows or durable functions are named {called!r}")
            made: DurableFunction[..., Any] = DurableFunction(
                self.rota.runs, self.rota.submissions, function, called, options, version=version,
                deadline=deadline, retention=retention,
            )  # fmt: skip
            self._add(made)
            self.workflows.declared[called] = made
            return made

        return declare if function is None else declare(function)

    async def map(
        self, task: Task[..., Any], /, *, over: Any, size: int | None = None, at_once: int = 50,
        tolerate: float | str = 0, each: EachName = "chunk", item: str | None = None,
        key: str | None = None, deadline: float | str | None = None, priority: int | None = None,
        arguments: Mapping[str, Any] | None = None, **more: Any,
    ) -> RunHandle:  # fmt: skip
        """Call a task for each item that an iterable yields: a run, which begins while items are added.

        Returns when all items are stored, in batches, so that a generator of millions needs little
        memory. The run's only step is called ``members``. See `Workflow.map` for the other options.

        Args:
            task: the task to call.
            over: a list, a generator or an async generator.
            size: members in a chunk, 100 by default.
            at_once: how many of its jobs may exist at a time.
            tolerate: how many members may fail: a number, or a share such as ``"1%"``.
            each: ``"chunk"``, or ``"job"``: every member is a job.
            item: the argument that takes the item; by default the first that isn't given.
            key: the same call with the same key goes on after the members that are stored: the iterable
                must yield the same items again.
            deadline: seconds (or ``"2h"``) after its start at which the run fails.
            priority: of its jobs: higher goes first.
            arguments: what every call gets besides the item.
            more: the same as keywords, for names that none of these options has.
        """
        if twice := sorted((arguments or {}).keys() & more.keys()):
            raise ConfigError(f"argument {twice[0]!r} is given twice: by itself and in arguments")
        options = {
            "size": size,
            "at_once": at_once,
            "tolerate": tolerate,
            "each": each,
            "item": item,
        }
        run_options = {"key": key, "deadline": deadline, "priority": priority}
        return await map_stream(
            self.rota, task, over, {**(arguments or {}), **more}, options, run_options
        )

    async def send(
        self, signal: str, *, key: str, payload: Any = None, once: str | None = None,
        connection: Any = None,
    ) -> SignalSent:  # fmt: skip
        """Send a signal to the durable function that waits for it, or to the next one that will.

        Args:
            signal: its name, as in ``ctx.wait(signal, key=...)``.
            key: which of those that wait for this name.
            payload: any JSON value: what the wait returns.
            once: the same text again is not another signal.
            connection: your own open transaction; the signal is sent if and only if it commits.
        """
        return await self.rota.signals.send(signal, key, payload, once=once, connection=connection)

    def prepare(self) -> None:
        """Complete what is declared late, for subclasses. Nodes, their children and commands call it."""

    # -- schedules

    def cron(self, expression: str, *, name: str | None = None, **settings: Any) -> TaskDecorator:
        """Run a function, a task or a workflow by a cron expression.

        ``@app.cron("@daily")`` decorates a function or task, ``app.cron("@daily")(flow)`` takes a
        workflow. A scheduler stores the schedule when it starts.

        Args:
            expression: 5 fields, 6 with seconds first, or ``@daily`` and the like.
            name: the schedule's name; the task's by default.
            settings: ``tz``, ``gap``, ``fold``, ``overlap``, ``catch_up``, ``spread``, ``jitter``,
                ``payload``, ``starts``, ``ends`` and the other fields of `ScheduleSpec`.
        """

        def declare(function: Any) -> Any:
            task = function
            if not isinstance(task, Task | Workflow):
                task = self._register(function, None, TaskOptions())
            what = _target(task)
            spec = make_spec(name or task.name, cron=expression, **what, **settings)
            if spec.name in self.schedules.declared:
                raise ConfigError(f"two schedules are named {spec.name!r}")
            if not (spec.exclude or spec.include):  # named calendars are in the database
                compile_schedule(spec)
            self.schedules.declared[spec.name] = spec
            return task

        return declare

    def on(
        self, source: str, *, name: str | None = None,
        where: Callable[[Message], bool] | None = None,
        arguments: Callable[[Message], Mapping[str, Any]] | None = None,
        start: Start = "new", batch: int = 500, secret: str | Sequence[str] = (),
    ) -> TaskDecorator:  # fmt: skip
        """Run a function or a task for each message of a broker's stream, exactly one job each.

        ``@app.on("redis://localhost/orders")`` decorates a function or task. Workers read the stream.

        Args:
            source: ``redis://host:port/STREAM``, ``nats://host:port/STREAM``,
                ``kafka://host:port,host:port/TOPIC`` or ``amqp://host:port/STREAM``, with ``+tls``,
                ``user:password@`` and options as needed; or ``http:rota``, ``http:github`` or
                ``http:stripe`` for signed requests.
            name: the trigger's name; the task's by default.
            where: a function of the `Message`; where it returns false, no job is made.
            arguments: a function of the `Message` that returns the arguments by name; by default the
                body is a JSON object with them.
            start: where a new trigger begins: with what comes after its first start (``new``), or
                with what is there already (``beginning``).
            batch: the most messages that one transaction turns into jobs.
            secret: of a source ``http:rota``, ``http:github`` or ``http:stripe``: what the sender signs
                with; several, while it is changed.
        """

        def declare(function: Any) -> Any:
            task = function
            if not isinstance(task, Task):
                task = self._register(function, None, TaskOptions())
            spec = make_trigger(
                source,
                task.name,
                name,
                secret,
                where=where,
                arguments=arguments,
                start=start,
                batch=batch,
            )
            if spec.name in self.triggers.declared:
                raise ConfigError(f"two triggers are named {spec.name!r}", field="name")
            self.triggers.declared[spec.name] = spec
            return task

        return declare

    def sink(
        self, target: str, *, name: str | None = None, kinds: Sequence[str] = (),
        queues: Sequence[str] = (), tasks: Sequence[str] = (), start: SinkStart = "new",
    ) -> None:  # fmt: skip
        """Send events to a topic of a broker, at least once, as CloudEvents. Workers send them.

        Args:
            target: ``redis://host:port/STREAM``, ``nats://host:port/SUBJECT``,
                ``kafka://host:port/TOPIC`` or ``amqp://host:port/EXCHANGE``, with ``+tls``,
                ``user:password@`` and options as needed.
            name: the sink's name; the topic's by default.
            kinds: the kinds of events. By default all that webhooks have; besides, what went well:
                ``succeeded``, ``cancelled``, ``fired``, ``run_succeeded`` and ``run_cancelled``,
                which are recorded only while a sink names them.
            queues: only events of these queues and their jobs.
            tasks: only events of these tasks.
            start: where a new sink begins: with events after its first start (``new``), or with all
                that are kept (``beginning``).
        """
        spec = make_sink(target, name, kinds, queues, tasks, start)
        if spec.name in self.sinks.declared:
            raise ConfigError(f"two sinks are named {spec.name!r}", field="name")
        self.sinks.declared[spec.name] = spec

    async def schedule(
        self, name: str, task: Task[..., Any] | Workflow | str = "", **settings: Any
    ) -> Change:
        """Create a schedule, or change it from now on. Returns 'created', 'updated' or 'unchanged'.

        Args:
            name: what it is called; unique in the namespace.
            task: the task to run, or its name; or the workflow or durable function to start.
                ``workflow="orders"`` names one that is declared elsewhere.
            settings: one of ``cron``, ``every`` (``"15m"``), ``calendar`` (``"last business day of
                the month at 18:00"``) and ``rrule``; ``payload``, the task's arguments or the run's
                input; and the other fields of `ScheduleSpec`.
        """
        if isinstance(task, Workflow | DurableFunction):
            await self.workflows.put_declared(task)
        return await self.rota.schedule(name, **_target(task), **settings)

    # -- submitting

    async def submit(
        self, task: str, payload: Mapping[str, Any] | None = None, **options: Any
    ) -> JobHandle[Any]:
        """Submit by name. If the task's code is elsewhere, what its nodes registered applies.

        A task that no node has registered is accepted, because a deploy may be on its way: the handle's
        `warnings` and the log say so.
        """
        return await self.rota.submit(task, payload, **options)

    def submit_sync(
        self, task: str, payload: Mapping[str, Any] | None = None, **options: Any
    ) -> JobHandle[Any]:
        """Submit by name from synchronous code."""
        return self.rota.submissions.submit_named_sync(task, payload, options)

    def require_task(self, name: str) -> Task[..., Any]:
        try:
            return self.tasks[name]
        except KeyError:
            known = ", ".join(sorted(self.tasks)) or "none"
            raise UnknownTask(f"no task is named {name!r} here; known: {known}") from None

    # -- its database

    @property
    def settings(self) -> Settings:
        return self.connector.settings

    @settings.setter
    def settings(self, settings: Settings) -> None:
        self.connector.settings = settings

    async def store(self) -> JobStore:
        return await self.rota.store()

    async def database_url(self) -> str:
        """Return the database's URL. Starts the embedded PostgreSQL when none is configured."""
        return await self.connector.database_url()

    async def migrate(self, *, include_post: bool = False) -> Migrated:
        """Migrate the database's schema to this code, and return the files that were applied."""
        return await self.connector.migrate(include_post=include_post)

    async def close(self) -> None:
        """Close this event loop's connections and those of synchronous callers, and leave the
        embedded PostgreSQL."""
        await self.connector.close()

    async def __aenter__(self) -> Self:
        await self.connector.opened()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @contextlib.asynccontextmanager
    async def using(self, settings: Settings) -> AsyncIterator[Self]:
        """Use another database or schema for a while, e.g. in tests."""
        async with self.connector.using(settings):
            yield self
