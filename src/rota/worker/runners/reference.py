"""Names the app so that child processes can import it."""

from __future__ import annotations

import importlib
import runpy
import sys
from types import ModuleType
from typing import Any

import msgspec

from rota.app import App
from rota.errors import ConfigError
from rota.worker.runners.results import CHILD_MAIN


class AppReference(msgspec.Struct, frozen=True):
    """The place of the app: in a module, or in the file that the parent runs."""

    module: str | None
    path: str | None
    attribute: str

    def __str__(self) -> str:
        return f"{self.module or self.path}:{self.attribute}"

    def load(self) -> Any:
        """Import it and return the app; raises whatever the import raises."""
        found: Any = importlib.import_module(self.module) if self.module else self._run_script()
        for name in self.attribute.split("."):
            found = getattr(found, name)
        return found

    def _run_script(self) -> ModuleType:
        if self.path is None:
            raise ImportError("an app reference needs a module or a path")
        module = ModuleType(CHILD_MAIN)
        module.__dict__.update(runpy.run_path(self.path, run_name=CHILD_MAIN))
        # Type hints of its classes are resolved through sys.modules, long after this.
        sys.modules[CHILD_MAIN] = module
        return module


def reference_to(app: App) -> AppReference:
    """Return the module and the name under which this app is found."""
    if app.reference is not None:
        module_given, _, attribute = app.reference.partition(":")
        return AppReference(module_given, None, attribute)
    # First the modules that define its tasks, then all others.
    defining = [task.function.__module__ for task in app.tasks.values()]
    for module_name in dict.fromkeys([*defining, *sys.modules]):
        module = sys.modules.get(module_name)
        if isinstance(module, ModuleType):
            for name, value in vars(module).items():
                if value is app:
                    return _reference(module, name)
    raise ConfigError(
        "plain functions run in child processes, which import the app by its module and name, but "
        "this App isn't a global variable of any module. Define it at module level, or give its "
        'plain functions runner="thread"'
    )


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
