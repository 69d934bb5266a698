"""Import the App of `module:app` under its real name: child processes import it again."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from rota.app import App
from rota.errors import ConfigError

_USUAL = ("app", "main")  # the modules to try when none is named


def load_app(reference: str) -> App:
    """Return the app that `package.module:variable` names; without a variable, the module's only app."""
    name, colon, variable = reference.partition(":")
    if not name or (colon and not variable.isidentifier()):
        raise ConfigError(f"{reference!r} names no app: write module:variable, e.g. shop.tasks:app")
    module = _import(name)
    app = _named(module, variable) if variable else _only(module)
    app.prepare()
    return app


def load_object(reference: str) -> Any:
    """Return what `package.module:variable` names, whatever it is."""
    name, _, variable = reference.partition(":")
    if not name or not variable.isidentifier():
        raise ConfigError(
            f"{reference!r} names nothing: write module:variable, e.g. shop.celery:app"
        )
    module = _import(name)
    if not hasattr(module, variable):
        raise ConfigError(f"module {name!r} has no {variable!r}")
    return getattr(module, variable)


def find_reference() -> str:
    """Return `module:app` of the app in this folder's app.py or main.py."""
    for name in _USUAL:
        if Path(f"{name}.py").is_file() and (found := apps_in(_import(name))):
            _only(sys.modules[name])
            return f"{name}:{next(iter(found))}"
    raise ConfigError(
        "no app was named, and this folder has no app.py or main.py with one. "
        "Name it: rota dev module:app"
    )


def apps_in(module: ModuleType) -> dict[str, App]:
    """Return the apps of a module by the name of their first variable."""
    found: dict[str, App] = {}
    for name, value in vars(module).items():
        if isinstance(value, App) and all(value is not known for known in found.values()):
            found[name] = value
    return found


def _import(name: str) -> ModuleType:
    here = os.getcwd()
    if here not in sys.path[:1]:
        sys.path.insert(0, here)
    if name.endswith(".py") or "/" in name:
        module = name.removesuffix(".py").strip("./").replace("/", ".")
        raise ConfigError(f"{name!r} is a file; give its module: {module}")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name != missing and not name.startswith(f"{missing}."):
            raise  # the module was found, one of its imports was not: keep the traceback
        part = "" if missing == name else f" (there is no {missing!r})"
        raise ConfigError(
            f"there is no module {name!r}{part}, neither in {here} nor among the installed packages"
        ) from None


def _named(module: ModuleType, variable: str) -> App:
    missing = object()
    value = getattr(module, variable, missing)
    if isinstance(value, App):
        return value
    known = ", ".join(f"{module.__name__}:{name}" for name in apps_in(module))
    advice = f"it has {known}" if known else "it has no App at all"
    what = (
        f"has no {variable!r}"
        if value is missing
        else f"has a {variable!r} that is no App, but of type {type(value).__name__}"
    )
    raise ConfigError(f"module {module.__name__!r} {what}; {advice}")


def _only(module: ModuleType) -> App:
    found = apps_in(module)
    if len(found) == 1:
        return next(iter(found.values()))
    if not found:
        raise ConfigError(f"module {module.__name__!r} has no App; make one: app = App()")
    known = " or ".join(f"{module.__name__}:{name}" for name in found)
    raise ConfigError(f"module {module.__name__!r} has several apps: say {known}")
