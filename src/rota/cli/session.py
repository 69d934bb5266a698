"""A run of a command: the options that all commands have, the app, the event loop."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar, cast, get_args

import typer

from rota.app import App
from rota.cli.loading import load_app
from rota.cli.options import option
from rota.cli.output import Output, Screen
from rota.cli.target import Server, find_server, is_named
from rota.cli.times import When
from rota.errors import ConfigError
from rota.lib.loops import loop_maker
from rota.operations.installation import Installation
from rota.store.changes import acting_as, local_actor

if TYPE_CHECKING:
    from rota.cli.remote import RemoteApp

T = TypeVar("T")
Body = TypeVar("Body", bound=Callable[..., None])

_PANEL = "Common options"
_COMMON: dict[str, Any] = {
    "output": Annotated[Output | None, option("Output format.", "--output", "-o", panel=_PANEL)],
    "as_json": Annotated[bool | None, option("Output JSON.", "--json", panel=_PANEL, metavar="")],
    "database_url": Annotated[
        str | None,
        option("Database to use. (default: ROTA_DATABASE_URL)", metavar="URL", panel=_PANEL),
    ],
    "server": Annotated[
        str | None,
        option("Server to use instead of a database. (default: ROTA_SERVER)", metavar="URL",
               panel=_PANEL),
    ],
    "profile": Annotated[
        str | None,
        option("Profile of the server to use. (default: ROTA_PROFILE)", metavar="NAME",
               panel=_PANEL),
    ],
    "namespace": Annotated[
        str | None,
        option("Namespace to use. (default: ROTA_NAMESPACE)", metavar="NAME", panel=_PANEL),
    ],
}  # fmt: skip
_SETTINGS = ("database_url", "namespace")  # of an App


class Session:
    """The context of a command. Its app is opened at the first use and closed at the end."""

    def __init__(
        self, context: typer.Context, screen: Screen, given: dict[str, Any],
        database_only: bool = False,
    ) -> None:  # fmt: skip
        if database_only and is_named(given):
            raise ConfigError(
                f"`{context.command_path}` works on a database, not on a server: give "
                "--database-url, where the database can be reached"
            )
        self.context = context
        self.screen = screen
        self.given = given  # the server and the settings named on the command line
        self._database_only = database_only
        self._settings = {name: value for name, value in given.items() if name in _SETTINGS}
        self._app: App | None = None
        self._make_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
        self._runner = asyncio.Runner(loop_factory=self._new_loop)

    @functools.cached_property
    def _server(self) -> Server | None:
        return None if self._database_only else find_server(self.given)

    @property
    def app(self) -> App:
        """The operations of the database, or of the server, which are the same."""
        if self._app is None:
            if self._server is not None:
                self._app = cast("App", self._server.open())
            else:
                self._app = App(**self._settings)
        return self._app

    @property
    def namespace(self) -> str:
        """The namespace that commands work on, and the server that has it."""
        if self._server is not None:
            return f"{self._server.namespace or 'of the token'} at {self._server.url}"
        return self.app.settings.namespace

    @functools.cached_property
    def now(self) -> datetime:
        """The database's time at the first look."""

        async def ask() -> datetime:
            if self._server is not None:
                return await cast("RemoteApp", self.app).now()
            return await (await self.app.store()).now()

        return self.run(ask())

    def at(self, when: When | None) -> datetime | None:
        """Return the moment of an option. Only a relative one needs the database's time."""
        return None if when is None else when.moment or when.at(self.now)

    @property
    def installation(self) -> Installation:
        if self._server is not None:
            return cast("Installation", cast("RemoteApp", self.app).installation)
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
        """Use the app of a module. Options of the command line override its settings.

        On a server, only its tasks are used.
        """
        if self._server is not None:
            return load_app(reference)
        # Child processes import the module again, and read these settings from their environment.
        os.environ.update({f"ROTA_{name.upper()}": value for name, value in self._settings.items()})
        self._app = load_app(reference)
        self._app.settings = self._app.settings.replace(**self._settings)
        return self._app

    def app_with(self, task: str | None, reference: str | None) -> App:
        """Return the app to use; one that is named by a reference must have the task."""
        if reference is None:
            return self.app
        app = self.load(reference)
        if task is not None:
            app.require_task(task)
        return self.app

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine. The event loop stands still between two runs, such as during a prompt."""
        return self._runner.run(coroutine)

    def _new_loop(self) -> asyncio.AbstractEventLoop:
        return self._make_loop()

    def run_node(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a node, on the event loop that the app's settings choose."""
        self._make_loop = loop_maker(self.app.settings.event_loop)
        return self._runner.run(coroutine)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with self._runner as runner:
            if self._app is not None:
                runner.run(self._app.close())


def command(
    group: typer.Typer, name: str, panel: str | None = None, *, database_only: bool = False
) -> Callable[[Body], Body]:
    """Register a command: a function that takes a session, and then its own options.

    `database_only`: it can't work on a server.
    """

    def register(body: Body) -> Body:
        group.command(name, rich_help_panel=panel)(_with_session(body, database_only))
        return body

    return register


def callback(group: typer.Typer, *, database_only: bool = False) -> Callable[[Body], Body]:
    """Register what a group does when none of its commands is named."""

    def register(body: Body) -> Body:
        group.callback(invoke_without_command=True)(_with_session(body, database_only))
        return body

    return register


def make_group(text: str) -> typer.Typer:
    """Make a group of commands. Without a command, it shows its help text."""
    group = typer.Typer(help=text)

    @callback(group)
    def show_help(session: Session) -> None:
        typer.echo(session.context.get_help())

    return group


def _with_session(body: Callable[..., None], database_only: bool = False) -> Callable[..., None]:
    """Add the common options to a command's signature, which typer reads."""
    signature = inspect.signature(body, eval_str=True)
    own = list(signature.parameters.values())[1:]

    @functools.wraps(body)
    def run(**given: Any) -> None:
        context = given.pop("context")
        common = {name: _nearest(context, name) for name in _COMMON}
        own_options = {name: value for name, value in given.items() if name not in _COMMON}
        if context.invoked_subcommand is None:
            as_json, output = common.pop("as_json"), common.pop("output")
            screen = Screen(output or ("json" if as_json else "table"))
            chosen = {name: value for name, value in common.items() if value}
            session = Session(context, screen, chosen, database_only)
            with acting_as(local_actor("cli")), session:
                body(session, **own_options)

    keyword = inspect.Parameter.KEYWORD_ONLY
    added = [inspect.Parameter("context", keyword, annotation=typer.Context)]
    for name, annotation in _COMMON.items():
        added.append(inspect.Parameter(name, keyword, annotation=annotation, default=None))
    own = [_without_negation(parameter).replace(kind=keyword) for parameter in own]
    run.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in (*own, *added)}
    del run.__wrapped__
    return run


def _without_negation(parameter: inspect.Parameter) -> inspect.Parameter:
    """Name a flag `--name` alone: typer would add `--no-name`, and `<bool>` to its help."""
    if get_args(parameter.annotation)[:1] == (bool,):
        info = parameter.annotation.__metadata__[0]
        info.metavar = ""
        if info.default is ...:  # in Annotated, the first name is stored as `default`
            info.default = f"--{parameter.name.replace('_', '-')}"
    return parameter


def _nearest(context: Any, name: str) -> Any:
    """Return an option's value: the command's own, or that of the closest group before it."""
    while context is not None:
        if value := context.params.get(name):
            return value
        if value == "":  # such as "$UNSET" in a script, which must not mean another database
            raise typer.BadParameter("must not be empty", param_hint=f"--{name.replace('_', '-')}")
        context = context.parent
    return None
