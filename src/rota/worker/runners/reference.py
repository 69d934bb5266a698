"""Finds the name by which child processes import the app."""

from __future__ import annotations

import sys
from types import ModuleType

from rota.app import App
from rota.errors import ConfigError
from rota.worker.runners.frames import AppReference


def reference_to(app: App) -> AppReference:
    """Return the module and the name under which this app is found."""
    for module in _likely_modules(app):
        for name, value in vars(module).items():
            if value is app:
                return _reference(module, name)
    raise ConfigError(
        "plain functions run in child processes, which import the app by its module and name, but "
        "this App isn't a global variable of any module. Define it at module level, or give its "
        'plain functions runner="thread"'
    )


def _likely_modules(app: App) -> list[ModuleType]:
    """Return modules: first those that define its tasks, then all others."""
    names = dict.fromkeys(
        [*(task.function.__module__ for task in app.tasks.values()), *list(sys.modules)]
    )
    found = [sys.modules.get(name) for name in names]
    return [module for module in found if isinstance(module, ModuleType)]


def _reference(module: ModuleType, attribute: str) -> AppReference:
    if module.__name__ != "__main__":
        return AppReference(module.__name__, None, attribute)
    spec = getattr(module, "__spec__", None)
    if spec is not None:  # python -m package.module
        return AppReference(spec.name, None, attribute)
    path = getattr(module, "__file__", None)
    if path is None:
        raise ConfigError("an App defined in an interactive session can't run plain functions")
    return AppReference(None, path, attribute)
