"""A run of a command: the options that all commands have, the app, the event loop."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Annotated, Any, Self, TypeVar

import typer

from rota.app import App
from rota.cli.loading import load_app
from rota.cli.output import Output, Screen
from rota.operations.installation import Installation
from rota.store.changes import acting_as, local_actor

T = TypeVar("T")
Body = TypeVar("Body", bound=Callable[..., None])

_PANEL = "Common options"
_COMMON: dict[str, tuple[Any, Any]] = {
    "output": (
        Annotated[
            Output | None,
            typer.Option("--output", "-o", help="Output format.", rich_help_panel=_PANEL),
        ],
        None,
    ),
    "as_json": (
        Annotated[
            bool,
            typer.Option("--json", help="Output JSON.", rich_help_panel=_PANEL),
        ],
        False,
    ),
    "database_url": (
        Annotated[
            str | None,
            typer.Option(
                metavar="URL",
                help="Database to use. (default: ROTA_DATABASE_URL)",
                rich_help_panel=_PANEL,
            ),
        ],
        None,
    ),
    "namespace": (
        Annotated[
            str | None,
            typer.Option(
                metavar="NAME",
                help="Namespace to use. (default: ROTA_NAMESPACE)",
                rich_help_panel=_PANEL,
            ),
        ],
        None,
    ),
}


class Session:
    """The context of a command. Its app is opened at the first use and closed at the end."""

    def __init__(self, screen: Screen, given: dict[str, Any]) -> None:
        self.screen = screen
        self._given = given  # the settings named on the command line
        self._app: App | None = None
        self._runner = asyncio.Runner()

    @property
    def app(self) -> App:
        if self._app is None:
            self._app = App(**self._given)
        return self._app

    @property
    def installation(self) -> Installation:
        return Installation(self.app.connector)

    def confirm(self, question: str, yes: bool) -> None:
        """Ask before a change that can't be undone. `--yes` skips it; programs must give it."""
        self.check_can_ask(yes)
        if not yes:
            typer.confirm(question, abort=True, err=True)

    def check_can_ask(self, yes: bool) -> None:
        """Refuse a command for programs without `--yes`, before it looks anything up."""
        if self.screen.structured and not yes:
            raise typer.BadParameter(
                "required with --output json or yaml, which can't ask for confirmation",
                param_hint="--yes",
            )

    def load(self, reference: str) -> App:
        """Use the app of a module. Options of the command line override its settings."""
        # Child processes import the module anew: they learn it from their environment.
        os.environ.update({f"ROTA_{name.upper()}": value for name, value in self._given.items()})
        self._app = load_app(reference)
        self._app.settings = self._app.settings.replace(**self._given)
        return self._app

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine. Between two runs the loop stands still: the time to ask a person."""
        return self._runner.run(coroutine)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._runner as runner:
            if self._app is not None:
                runner.run(self._app.close())


def command(group: typer.Typer, name: str, panel: str | None = None) -> Callable[[Body], Body]:
    """Register a command: a function that takes a session, and then its own options."""

    def register(body: Body) -> Body:
        group.command(name, rich_help_panel=panel)(_with_session(body))
        return body

    return register


def callback(group: typer.Typer) -> Callable[[Body], Body]:
    """Register what a group does when none of its commands is named."""

    def register(body: Body) -> Body:
        group.callback(invoke_without_command=True)(_with_session(body))
        return body

    return register


def _with_session(body: Callable[..., None]) -> Callable[..., None]:
    """Add the common options to a command's signature, which typer reads."""
    signature = inspect.signature(body, eval_str=True)
    own = list(signature.parameters.values())[1:]
    wants_context = any(parameter.name == "context" for parameter in own)

    @functools.wraps(body)
    def run(**given: Any) -> None:
        context = given["context"] if wants_context else given.pop("context")
        common = {name: _nearest(context, name) for name in _COMMON}
        for name in _COMMON:
            del given[name]
        if context.invoked_subcommand is None:
            as_json, output = common.pop("as_json"), common.pop("output")
            screen = Screen(output or ("json" if as_json else "table"))
            chosen = {name: value for name, value in common.items() if value}
            with acting_as(local_actor("cli")), Session(screen, chosen) as session:
                body(session, **given)

    keyword = inspect.Parameter.KEYWORD_ONLY
    added = [
        inspect.Parameter(name, keyword, annotation=annotation, default=default)
        for name, (annotation, default) in _COMMON.items()
    ]
    if not wants_context:
        added.insert(0, inspect.Parameter("context", keyword, annotation=typer.Context))
    own = [parameter.replace(kind=keyword) for parameter in own]
    run.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in (*own, *added)}
    del run.__wrapped__
    return run


def _nearest(context: Any, name: str) -> Any:
    """Return an option's value: the command's own, or that of the closest group before it."""
    while context is not None:
        if value := context.params.get(name):
            return value
        context = context.parent
    return None
