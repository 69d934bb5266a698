"""Writes src/rota/sync.py: the verbs of `App` for synchronous code, from the asynchronous ones.

`make reference` runs it. A test fails when a verb is missing there, or differs.
"""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from rota.app import App

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "src" / "rota" / "sync.py"
NOUNS = (
    "jobs", "dead", "queues", "nodes", "pools", "alerts", "maintenance", "bulk", "views",
    "registry", "statistics",
    "history", "schedules", "events", "webhooks", "endpoints", "workflows", "runs", "signals",
    "triggers", "sinks", "persons",
)  # fmt: skip
# Of an event loop: connections, and what is awaited by itself.
LEFT_OUT = {"store", "database_url", "using", "stream"}

HEAD = '''"""The verbs of an app for synchronous code: ``app.sync.jobs.list()``.

Written by docs/generate_sync.py. Each is the coroutine of the same name, run by an event loop in a
thread of its own.
"""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from rota.lib.sync_bridge import sync_bridge

if TYPE_CHECKING:
@imports@

T = TypeVar("T")


class _Shell:
    """Runs the coroutines of one asynchronous object."""

    def __init__(self, own: Any, name: str) -> None:
        self._own = own
        self._name = name

    def __repr__(self) -> str:
        return f"<{self._name} for synchronous code>"

    def _run(self, call: Callable[[], Coroutine[Any, Any, T]], verb: str) -> T:
        return sync_bridge.call(call, verb, *self._words(verb))

    def _iterate(self, call: Callable[[], AsyncIterator[T]], verb: str) -> Iterator[T]:
        return sync_bridge.iterate(call, verb, *self._words(verb))

    def _words(self, verb: str) -> tuple[str, str]:
        """Return what was called, and what those call instead who have an event loop."""
        return f"{self._name}.{verb}()", f"app{self._name[8:]}.{verb}()"
'''


def public(owner: type) -> Iterator[tuple[str, Any]]:
    """Yield the public coroutines and async generators of a class, those of its bases first."""
    members = {name: each for base in reversed(owner.__mro__) for name, each in vars(base).items()}
    for name, function in members.items():
        if name.startswith("_") or name in LEFT_OUT:
            continue
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            yield name, function


class _Builtins(ast.NodeTransformer):
    """Names `builtins.list`: in a class that has a verb `list`, the bare word is that one."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id != "list":
            return node
        return ast.Attribute(ast.Name("builtins", ast.Load()), "list", ast.Load())


class Writer:
    def __init__(self) -> None:
        self._imports: dict[str, str] = {}

    def verb(self, name: str, function: Any) -> str:
        """Return the synchronous method of a coroutine."""
        module = sys.modules[function.__module__]
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        assert isinstance(tree, ast.AsyncFunctionDef)
        tree = _Builtins().visit(tree)
        self._defaults(tree.args, module)
        for each in ast.walk(tree.args):
            if isinstance(each, ast.arg) and each.annotation is not None:
                self._import(each.annotation, module)
        assert tree.returns is not None, f"{module.__name__}.{name} returns nothing that is said"
        self._import(tree.returns, module)
        is_iterator = inspect.isasyncgenfunction(function)
        returns = ast.unparse(tree.returns)
        if is_iterator:
            returns = returns.replace("AsyncIterator[", "Iterator[")
        about = (inspect.getdoc(function) or "").partition("\n\n")[0].replace("\n", " ")
        call = f"lambda: self._own.{name}({', '.join(self._forwarded(tree.args))})"
        run = "_iterate" if is_iterator else "_run"
        if not is_iterator and returns != "None":
            body = f"done: {returns} = self.{run}({call}, {name!r})\n        return done"
        else:
            body = f"{'return ' if is_iterator else ''}self.{run}({call}, {name!r})"
        doc = f'        """{about}"""\n' if about else ""
        return f"    def {name}({ast.unparse(tree.args)}) -> {returns}:\n{doc}        {body}\n"

    def _defaults(self, arguments: ast.arguments, module: ModuleType) -> None:
        """Replace names of constants by their values."""
        for each in (arguments.defaults, arguments.kw_defaults):
            for number, default in enumerate(each):
                if isinstance(default, ast.Name):
                    value = getattr(module, default.id)
                    known = ast.parse("msgspec.UNSET", mode="eval").body
                    each[number] = known if value is msgspec.UNSET else ast.Constant(value)

    def _forwarded(self, arguments: ast.arguments) -> Iterator[str]:
        yield from (each.arg for each in [*arguments.posonlyargs, *arguments.args][1:])
        if arguments.vararg is not None:
            yield f"*{arguments.vararg.arg}"
        yield from (f"{each.arg}={each.arg}" for each in arguments.kwonlyargs)
        if arguments.kwarg is not None:
            yield f"**{arguments.kwarg.arg}"

    def _import(self, annotation: ast.expr, module: ModuleType) -> None:
        source = ast.parse(inspect.getsource(module))
        known = dict(_imported(source))
        defined = {each.name for each in source.body if isinstance(each, ast.ClassDef)} | {
            target.id
            for each in source.body
            if isinstance(each, ast.Assign | ast.AnnAssign)
            for target in (each.targets if isinstance(each, ast.Assign) else [each.target])
            if isinstance(target, ast.Name)
        }
        for each in ast.walk(annotation):
            if not isinstance(each, ast.Name) or each.id in ("Any", "AsyncIterator", "Iterator"):
                continue
            line = known.get(each.id)
            if each.id in defined:
                line = f"from {module.__name__} import {each.id}"
            if line is not None and self._imports.setdefault(each.id, line) != line:
                raise SystemExit(
                    f"two things are named {each.id}: {line}, {self._imports[each.id]}"
                )

    def imports(self) -> str:
        return "\n".join(f"    {line}" for line in sorted(set(self._imports.values())))


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for each in ast.walk(tree):
        if isinstance(each, ast.ImportFrom):
            for alias in each.names:
                yield alias.asname or alias.name, f"from {each.module} import {alias.name}"


def generated() -> str:
    """Return the text of the module, before it is formatted."""
    writer = Writer()
    app = App(database_url="postgresql://nowhere/none")
    classes = []
    for noun in NOUNS:
        owner = type(getattr(app, noun))
        verbs = "\n".join(writer.verb(name, function) for name, function in public(owner))
        title = f"Sync{noun.capitalize()}"
        classes.append(f'class {title}(_Shell):\n    """`app.sync.{noun}`"""\n\n{verbs}')
    shells = "\n".join(
        f'        self.{noun} = Sync{noun.capitalize()}(app.{noun}, "app.sync.{noun}")'
        for noun in NOUNS
    )
    own = "\n".join(writer.verb(name, function) for name, function in public(App))
    classes.append(
        'class SyncApp(_Shell):\n    """`app.sync`: the verbs of an app, for synchronous code."""\n\n'
        '    def __init__(self, app: Any) -> None:\n        super().__init__(app, "app.sync")\n'
        f"{shells}\n\n{own}"
    )
    return HEAD.replace("@imports@", writer.imports()) + "\n\n" + "\n\n".join(classes)


def formatted() -> str:
    ruff = [sys.executable, "-m", "ruff"]
    name = ["--stdin-filename", str(PAGE)]
    text = generated()
    for command in (["check", "--select", "I", "--fix", "-q", "-"], ["format", "-q", "-"]):
        text = subprocess.run(
            [*ruff, *command, *name], input=text, capture_output=True, text=True, check=True,
            cwd=ROOT,
        ).stdout  # fmt: skip
    return text


if __name__ == "__main__":
    PAGE.write_text(formatted(), "utf-8")
