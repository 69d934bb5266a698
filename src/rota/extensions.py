"""The hooks of an app: middlewares, lifespans, submit hooks, propagated variables and a resolver."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from contextvars import ContextVar
from typing import Any, TypeVar

from rota.config import check_name
from rota.context import ErrorHook
from rota.errors import ConfigError
from rota.lifecycle import ChildLifespan, State, WorkerLifespan, check_lifespan
from rota.middleware import Middleware, Scope, check_middleware, no_scope
from rota.submission import Submission, SubmitHook
from rota.task import Task

_Lifespan = TypeVar("_Lifespan", bound=WorkerLifespan)
_ChildLifespan = TypeVar("_ChildLifespan", bound=ChildLifespan)
_Hook = TypeVar("_Hook", bound=SubmitHook)

CONTEXT_HEADER = "context"  # in a job's headers: the variables that it carries


class Extensions:
    """The parts of an `App` by which other code takes part in what it does."""

    def __init__(self) -> None:
        self.tasks: dict[str, Task[..., Any]] = {}
        self.state = State()
        self.error_hooks: list[ErrorHook] = []
        self.submit_hooks: list[SubmitHook] = []
        self.middlewares: list[Callable[..., Any]] = []
        self.lifespans: list[WorkerLifespan] = []
        self.child_lifespans: list[ChildLifespan] = []
        self._scopes: dict[bool, Scope | None] = {True: None, False: None}
        self._carried: dict[str, ContextVar[Any]] = {}

    def middleware(self, middleware: Middleware) -> Middleware:
        """Register code to run around every handler, where it runs: see `rota.middleware`.

        ``@app.middleware`` on a generator function of ``(context)``, which wraps coroutines and plain
        functions; or on a coroutine function or a plain function of ``(call_next, context)``, which
        wraps those of its kind. The first that is registered is the outermost.
        """
        check_middleware(middleware)
        self.middlewares.append(middleware)
        for task in self.tasks.values():
            self.wrap(task)
        return middleware

    def wrap(self, task: Task[..., Any]) -> None:
        """Put the middlewares and the dependencies around a task's call."""
        if not task.name.startswith("rota."):
            task.wrap(self.middlewares, lambda: self._scopes[task.is_async])

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

    def on_submit(self, hook: _Hook) -> _Hook:
        """Register a function to call before each submit of this process: ``hook(submission)``.

        ``@app.on_submit`` on a plain function. It may add to `submission.headers`, or raise to refuse
        the submit. Starts of workflows and durable functions are submits, too; `submit_many` is one.
        """
        if not callable(hook) or inspect.iscoroutinefunction(hook):
            raise ConfigError("on_submit takes a plain function of (submission), not a coroutine")
        self.submit_hooks.append(hook)
        return hook

    def lifespan(self, function: _Lifespan) -> _Lifespan:
        """Register what a worker's process opens at its start and closes at its end.

        ``@app.lifespan`` on an async generator function, or a plain one, of ``(state)``. What it sets
        there, coroutines and functions in threads find as ``ctx.state``.
        """
        check_lifespan(function, child=False)
        self.lifespans.append(function)
        return function

    def child_lifespan(self, function: _ChildLifespan) -> _ChildLifespan:
        """Register what each child process opens at its start and closes at its end.

        ``@app.child_lifespan`` on a generator function of ``(state)``. What it sets there, plain
        functions find as ``ctx.state``.
        """
        check_lifespan(function, child=True)
        self.child_lifespans.append(function)
        return function

    def inject(self, scope: Scope | None = None, *, sync: Scope | None = None) -> None:
        """Say where the parameters come from that are annotated `Injected`.

        Args:
            scope: for coroutines: called with the context of each call. Returns a context manager,
                async or not, which gives an object with ``get(type)``.
            sync: the same for plain functions, which can't await.
        """
        for given, is_async in ((scope, True), (sync, False)):
            if given is not None:
                if not callable(given):
                    raise ConfigError(
                        "inject() takes functions of (context) that return a context manager, not "
                        f"{given!r}"
                    )
                self._scopes[is_async] = given

    def check_scopes(self) -> None:
        """Refuse to start without a scope for the tasks that have injected parameters."""
        for task in self.tasks.values():
            if (wanted := task.arguments.injected) and self._scopes[task.is_async] is None:
                raise no_scope(task.name, wanted, task.is_async)

    def propagate(self, variable: ContextVar[Any], *, name: str | None = None) -> None:
        """Let jobs carry the value that a context variable has at the submit, to where they run.

        The value must be JSON. It travels in the job's headers, and to the jobs that the job submits.
        Without a value at the submit, nothing is set where it runs.

        Args:
            variable: such as the tenant, the locale or the id of a request.
            name: how it is called in the headers; its own name by default.
        """
        called = check_name("variable", name or variable.name)
        if called in self._carried:
            raise ConfigError(f"two variables that are propagated are named {called!r}")
        if not self._carried:
            self.on_submit(self._carry)
            self.middleware(self._restore)
        self._carried[called] = variable

    def _carry(self, submission: Submission) -> None:
        missing = object()
        values = {
            name: value
            for name, variable in self._carried.items()
            if (value := variable.get(missing)) is not missing
        }
        if values:
            submission.headers.setdefault(CONTEXT_HEADER, values)

    def _restore(self, context: Any) -> Generator[None]:
        values = context.job.headers.get(CONTEXT_HEADER)
        set_ = []
        for name, value in values.items() if isinstance(values, dict) else ():
            if (variable := self._carried.get(name)) is not None:
                set_.append((variable, variable.set(value)))
        try:
            yield
        finally:
            for variable, token in reversed(set_):
                variable.reset(token)
