"""The app: a `rota.App` that declares tasks and schedules in Celery's words."""

from __future__ import annotations

import fnmatch
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rota.app import App
from rota.config import Settings
from rota.errors import ConfigError
from rota.files.celery_beat import read_beat, schedule_rule
from rota.files.foreign import name_of
from rota.integrations.celery.results import AsyncResult
from rota.integrations.celery.tasks import CeleryTask, NotMapped, retry_of, seconds
from rota.task import Task, TaskOptions

_current: list[Celery] = []
_shared: list[SharedTask] = []
_RETRY = {
    "max_retries": 3, "default_retry_delay": 180, "autoretry_for": (), "dont_autoretry_for": (),
    "retry_backoff": False, "retry_backoff_max": 600, "retry_jitter": True, "retry_kwargs": None,
}  # fmt: skip
# Options of @app.task that only Rota has.
_ROTAS = frozenset({"retry", "needs", "expected", "deadline", "heartbeat_timeout"})
# Options of @app.task that change nothing here: `report` says what becomes of them.
_UNNOTICED = frozenset({
    "ignore_result", "acks_late", "acks_on_failure_or_timeout", "reject_on_worker_lost",
    "track_started", "store_errors_even_if_ignored", "send_events", "typing", "trail", "throws",
    "rate_limit", "pydantic", "expires",
})  # fmt: skip


class crontab:  # noqa: N801 - Celery's name
    """A schedule by cron fields. Day of month and day of week must both match, as in Celery."""

    def __init__(
        self, minute: Any = "*", hour: Any = "*", day_of_week: Any = "*", day_of_month: Any = "*",
        month_of_year: Any = "*",
    ) -> None:  # fmt: skip
        self._orig_minute, self._orig_hour = minute, hour
        self._orig_day_of_week, self._orig_day_of_month = day_of_week, day_of_month
        self._orig_month_of_year = month_of_year
        schedule_rule(self)  # so that a mistake is found where it is made


class Conf:
    """The configuration. What Rota has no counterpart for is kept, and changes nothing."""

    def __init__(self) -> None:
        self.timezone = "UTC"
        self.beat_schedule: dict[str, Any] = {}
        self.task_routes: Any = {}
        self.task_default_queue = "default"
        self.task_time_limit: float | None = None
        self.task_soft_time_limit: float | None = None
        self.task_always_eager = False

    def update(self, given: Mapping[str, Any] | None = None, **more: Any) -> None:
        for name, value in {**(given or {}), **more}.items():
            setattr(self, name, value)

    def queue_of(self, task: str) -> str | None:
        """Return the queue that `task_routes` names for a task."""
        if not isinstance(self.task_routes, Mapping):
            raise NotMapped("conf.task_routes: only a dict of names and queues is understood here")
        for pattern, route in self.task_routes.items():
            if fnmatch.fnmatchcase(task, str(pattern)):
                return str(route["queue"]) if isinstance(route, Mapping) else str(route)
        return None


class _Late:
    """A signal whose receivers are called before a node starts, when all tasks are known."""

    def __init__(self) -> None:
        self.receivers: list[Callable[..., Any]] = []

    def connect(self, receiver: Callable[..., Any] | None = None, **_: Any) -> Any:
        if receiver is None:
            return self.connect
        self.receivers.append(receiver)
        return receiver


class Celery(App):
    """A `rota.App` with Celery's words. Broker and result backend are left out: PostgreSQL is both.

    Args:
        main: the name of the application.
        include: modules with tasks, imported before a node starts.
        settings: of Rota; by default from the environment (``ROTA_DATABASE_URL``).
    """

    def __init__(
        self, main: str | None = None, *, include: Iterable[str] = (), settings: Settings | None = None,
        **left_out: Any,
    ) -> None:  # fmt: skip
        super().__init__(settings or Settings.read(app_name=main))
        self.main = main or "celery"
        self.left_out = left_out  # broker, backend and the like
        self.conf = Conf()
        self.on_after_configure, self.on_after_finalize = _Late(), _Late()
        self._include = list(include)
        self._beat: set[str] = set()
        _current[:] = [self]
        for shared in _shared:
            shared.register(self)

    def task(self, *given: Any, **options: Any) -> Any:
        """Register a function as a task, with Celery's options.

        A coroutine, or a function with an option that only Rota has (`retry`, `needs`), is a task of
        Rota's.
        """
        if given and callable(given[0]):
            return self._declare(given[0], {})
        return lambda function: self._declare(function, options)

    def _declare(self, function: Callable[..., Any], options: Mapping[str, Any]) -> Any:
        if inspect.iscoroutinefunction(function) or _ROTAS & set(options):
            given = {"name": self._name_of(function), **options}
            return super().task(**given)(function)
        rest = dict(options)
        name = rest.pop("name", None) or self._name_of(function)
        retry, max_retries, delay = retry_of(**{n: rest.pop(n, d) for n, d in _RETRY.items()})
        limits = (rest.pop("soft_time_limit", None), rest.pop("time_limit", None),
                  self.conf.task_soft_time_limit, self.conf.task_time_limit)  # fmt: skip
        made = TaskOptions.checked(
            queue=rest.pop("queue", None) or self.conf.queue_of(name) or self.conf.task_default_queue,
            priority=rest.pop("priority", None) or 0, retry=retry,
            timeout=next((seconds(each) for each in limits if each is not None), None),
            guarantee=rest.pop("guarantee", "at_least_once"), runner=rest.pop("runner", None),
        )  # fmt: skip
        bind = bool(rest.pop("bind", False))
        if rest.get("serializer", "json") != "json":
            raise NotMapped(f"task {name}: serializer: arguments are JSON here")
        rest.pop("serializer", None)
        if rest.get("base") is not None:
            raise NotMapped(f"task {name}: base: put what the class does around the function")
        if unknown := sorted(set(rest) - _UNNOTICED - {"base"}):
            raise NotMapped(f"task {name}: the option {unknown[0]!r} has no counterpart here")
        task = CeleryTask(
            self.rota.submissions, function, name_of(name), self, bind=bind, options=made,
            max_retries=max_retries, default_retry_delay=delay,
        )  # fmt: skip
        self._add(task)
        return task

    def _name_of(self, function: Callable[..., Any]) -> str:
        module = self.main if function.__module__ == "__main__" else function.__module__
        return f"{module}.{function.__name__}"

    # -- configuration

    def config_from_object(self, source: Any, namespace: str | None = None, **_: Any) -> None:
        """Read the configuration from a module, a class or an object, or from the name of one."""
        if isinstance(source, str):
            name = source.removeprefix("django.conf:")
            try:
                source = importlib.import_module(name)
            except ModuleNotFoundError:
                module, attribute = name.rsplit(".", 1)
                source = getattr(importlib.import_module(module), attribute)
        found = source if isinstance(source, Mapping) else vars(source)
        prefix = f"{namespace}_" if namespace else ""
        for name, value in found.items():
            if not name.startswith(("_", "__")) and name.startswith(prefix):
                setattr(self.conf, name.removeprefix(prefix).lower(), value)

    def autodiscover_tasks(
        self, packages: Iterable[str] | Callable[[], Iterable[str]] | None = None,
        related_name: str = "tasks", force: bool = False,
    ) -> None:  # fmt: skip
        """Import the module `tasks` of each package before a node starts; by default of Django's."""
        if packages is None:
            try:
                from django.conf import settings as django_settings
            except ImportError:
                raise NotMapped("autodiscover_tasks(): name the packages, or use Django") from None
            packages = list(django_settings.INSTALLED_APPS)
        for package in packages() if callable(packages) else packages:
            self._include.append(f"{package}.{related_name}?")

    def add_periodic_task(
        self, schedule: Any, call: Any, args: Sequence[Any] = (), kwargs: Any = None,
        name: str | None = None, **options: Any,
    ) -> str:  # fmt: skip
        """Add an entry to `beat_schedule`: `call` is ``task.s(...)``, or a task."""
        if isinstance(call, SharedTask):
            call = call.s()
        task = call if isinstance(call, Task) else call._task
        args = tuple(args) or getattr(call, "_args", ())
        kwargs = kwargs or getattr(call, "_kwargs", {})
        key = name or f"{task.name}({', '.join(map(repr, args))})"
        self.conf.beat_schedule[key] = {
            "task": task.name, "schedule": schedule, "args": args, "kwargs": kwargs, "options": options
        }  # fmt: skip
        return key

    def prepare(self) -> None:
        """Import what has tasks, and declare the schedules of `beat_schedule`."""
        while self._include:
            _import(self._include.pop(0))
        for late in (self.on_after_configure, self.on_after_finalize):
            while late.receivers:
                late.receivers.pop(0)(sender=self)
        for name in self._beat:
            self.schedules.declared.pop(name, None)
        functions = {
            name: _caller(task) for name, task in self.tasks.items() if isinstance(task, CeleryTask)
        }
        read = read_beat(self.conf.beat_schedule, str(self.conf.timezone), functions)
        if read.bad:
            raise ConfigError("\n".join(f"{each.place}: {each.message}" for each in read.bad))
        self.schedules.declared.update(read.schedules)
        self._beat = set(read.schedules)

    finalize = prepare

    # -- submitting

    def send_task(
        self, name: str, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Any:  # fmt: skip
        """Submit a task by name."""
        task = self.tasks.get(name)
        if isinstance(task, CeleryTask):
            return task.apply_async(args, kwargs, **options)
        if args:
            raise NotMapped(
                f"send_task({name!r}): the code of this task isn't here, so that its arguments need "
                "names: give kwargs"
            )
        chosen = {"delay": options.pop("countdown", None), "at": options.pop("eta", None),
                  "queue": options.pop("queue", None), "key": options.pop("task_id", None),
                  "priority": options.pop("priority", None)}  # fmt: skip
        if options:
            raise NotMapped(f"send_task(): the option {min(options)!r} has no counterpart")
        given = {n: v for n, v in chosen.items() if v is not None}
        handle = self.submit_sync(name, dict(kwargs or {}), **given)
        return AsyncResult(handle.id, app=self, handle=handle)

    def AsyncResult(self, task_id: str) -> AsyncResult:  # noqa: N802 - Celery's name
        return AsyncResult(task_id, app=self)


def _caller(task: CeleryTask) -> Callable[..., Any]:
    """Return something with the signature that callers of a task see."""

    def function() -> None: ...

    own = dict(inspect.signature(task.function).parameters)
    own.pop("ctx", None)
    function.__signature__ = inspect.Signature(list(own.values()))  # type: ignore[attr-defined]
    return function


def _import(module: str) -> None:
    """Import a module. One that ends in `?` may be missing: not every package has tasks."""
    if not module.endswith("?"):
        importlib.import_module(module)
        return
    name = module[:-1]
    package = name.rpartition(".")[0]
    importlib.import_module(package)
    if name in sys.modules or importlib.util.find_spec(name) is not None:
        importlib.import_module(name)


class SharedTask:
    """A task that belongs to whichever app there is: `@shared_task`."""

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        self._function, self._options = function, options
        self._task: Any = None

    def register(self, app: Celery) -> Any:
        self._task = app._declare(self._function, self._options)
        return self._task

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._task or self.register(current_app()), name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return (self._task or self.register(current_app()))(*args, **kwargs)


def shared_task(*given: Any, **options: Any) -> Any:
    """Register a function as a task of the app, which may be made later."""

    def declare(function: Callable[..., Any]) -> SharedTask:
        shared = SharedTask(function, options)
        _shared.append(shared)
        if _current:
            shared.register(_current[0])
        return shared

    return declare(given[0]) if given and callable(given[0]) else declare


def current_app() -> Celery:
    """Return the app that was made last."""
    if not _current:
        raise ConfigError(
            "there is no app yet: make one, app = Celery('shop'), before its tasks are used"
        )
    return _current[0]
