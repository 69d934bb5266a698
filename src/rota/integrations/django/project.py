"""The Rota apps of a Django project: one per backend, made at the first use.

Protocol. A backend exists once per thread, its app once per process. Tasks register here when `@task`
makes them; a worker first imports the modules that have them (`load`). Child processes import
`rota.integrations.django.project:app_<alias>`, which does the same.
"""

from __future__ import annotations

import hashlib
import importlib
import pkgutil
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any

import django
from django.apps import apps
from django.conf import settings as django_settings
from django.utils.module_loading import import_string, module_has_submodule

from rota.app import App
from rota.config import NAME
from rota.errors import ConfigError
from rota.integrations.django.options import Options
from rota.lib.sync_bridge import sync_bridge
from rota.model import Guarantee
from rota.task import Task

_LONGEST = 100
_lock = threading.RLock()
_apps: dict[str, App] = {}
tasks_by_name: dict[str, Any] = {}  # the tasks that `@task` made, by their names in Rota


def rota_aliases() -> list[str]:
    """Return the aliases in TASKS whose backend is Rota's."""
    from rota.integrations.django.backend import RotaBackend

    found = []
    for alias, params in getattr(django_settings, "TASKS", {}).items():
        try:
            kind = import_string(params["BACKEND"])
        except (ImportError, KeyError):
            continue  # Django's own check says so
        if isinstance(kind, type) and issubclass(kind, RotaBackend):
            found.append(alias)
    return found


def options_of(alias: str | None = None) -> Options:
    """Return the options of a backend; without an alias, of the first one that is Rota's."""
    if alias is None:
        aliases = rota_aliases()
        if not aliases:
            raise ConfigError(
                "TASKS has no backend of Rota: add "
                '{"default": {"BACKEND": "rota.integrations.django.RotaBackend"}} to your settings'
            )
        alias = "default" if "default" in aliases else aliases[0]
    try:
        params = django_settings.TASKS[alias]
    except (AttributeError, KeyError):
        raise ConfigError(f"TASKS has no backend {alias!r}") from None
    return Options.read(alias, params)


def app_of(alias: str | None = None) -> App:
    """Return the app of a backend; without an alias, of the first one that is Rota's."""
    options = options_of(alias)
    with _lock:
        app = _apps.get(options.alias)
        if app is None:
            app = _apps[options.alias] = App(options.settings())
            app.reference = f"{__name__}:{variable_of(options.alias)}"
        elif app.settings.database_url != (url := options.database_url()):
            _move(app, url)
    return app


def _move(app: App, url: str) -> None:
    """Follow Django to another database: its tests make one of their own."""
    if sync_bridge.loop is not None:
        sync_bridge.call(app.close, "close")
    app.settings = app.settings.replace(database_url=url)


def variable_of(alias: str) -> str:
    """Return the name under which this module has the app of a backend."""
    return "app_" + re.sub(r"\W", "_", alias)


def __getattr__(name: str) -> Any:
    """Return the app of a backend with all tasks of the project, for workers and their children."""
    if name.startswith("app_"):
        if not apps.ready:
            django.setup()
        for alias in rota_aliases():
            if variable_of(alias) == name:
                return load(alias)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def load(alias: str | None = None) -> App:
    """Return the app of a backend, with all tasks of the project."""
    discover()
    options, app = options_of(alias), app_of(alias)
    for task in list(tasks_by_name.values()):
        rota_task(options.alias, task)
    for each in app.tasks.values():
        use_djangos_transaction(options.database, each)
    return app


def discover() -> None:
    """Import what has tasks: `tasks` of each installed app, and the modules that OPTIONS names."""
    for config in apps.get_app_configs():
        if config.name != "rota.integrations.django" and module_has_submodule(
            config.module, "tasks"
        ):
            found = importlib.import_module(f"{config.name}.tasks")
            for inner in pkgutil.walk_packages(
                getattr(found, "__path__", ()), f"{found.__name__}."
            ):
                importlib.import_module(inner.name)
    for alias in rota_aliases():
        for module in options_of(alias).modules:
            importlib.import_module(module)


def is_discovered(module: str) -> bool:
    """Return whether workers import this module by themselves."""
    named = {name for alias in rota_aliases() for name in options_of(alias).modules}
    homes = {f"{config.name}.tasks" for config in apps.get_app_configs()}
    return module in named or any(module == home or module.startswith(f"{home}.") for home in homes)


# -- tasks


def name_of(path: str) -> str:
    """Return the name of a task in Rota: its path. One that is too long or not ASCII is shortened."""
    if NAME.fullmatch(path):
        return path
    plain = re.sub(r"[^A-Za-z0-9_.:-]", "_", path)
    mark = hashlib.sha256(path.encode()).hexdigest()[:10]
    return f"{mark}.{plain[-(_LONGEST - len(mark) - 1) :]}"


def remember(task: Any) -> None:
    """Note a task that `@task` made. Copies of it, by `using`, come later and are not noted."""
    tasks_by_name.setdefault(name_of(task.module_path), task)


def rota_task(alias: str, task: Any) -> Task[..., Any]:
    """Return Rota's side of a task, which is made at the first use."""
    from rota.integrations.django.calls import function_for

    app, name = app_of(alias), name_of(task.module_path)
    found = app.tasks.get(name)
    if found is None:
        with _lock:
            found = app.tasks.get(name)
            if found is None:
                options = {**options_of(alias).defaults, **task.task_options()}
                function = function_for(task, alias)
                found = app.task(name=name, **options)(function)
    return found


def use_djangos_transaction(database: str, task: Task[..., Any]) -> None:
    """Let an exactly_once plain function write through the ORM."""
    if task.options_.guarantee is Guarantee.EXACTLY_ONCE and not task.is_async:
        from rota.integrations.django.transactions import DjangoEffects

        task.effects = DjangoEffects(database)


def cron(
    expression: str, *, name: str | None = None, backend: str | None = None,
    arguments: Mapping[str, Any] | None = None, **settings: Any,
) -> Callable[[Any], Any]:  # fmt: skip
    """Run a task by a cron expression: a decorator above `@task`.

    Args:
        expression: 5 fields, 6 with seconds first, or ``@daily`` and the like.
        name: the schedule's name; the task's by default.
        backend: the alias in TASKS; by default that of the task.
        arguments: the arguments of each call, by name.
        settings: ``tz``, ``overlap``, ``catch_up`` and the other settings of a schedule. The zone is
            Django's TIME_ZONE unless given.
    """
    settings.setdefault("tz", django_settings.TIME_ZONE)

    def declare(task: Any) -> Any:
        alias = backend or task.backend
        ours = rota_task(alias, task)
        app_of(alias).cron(expression, name=name, payload=dict(arguments or {}), **settings)(ours)
        return task

    return declare
