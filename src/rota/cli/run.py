"""`rota dev`, `rota start`, `rota migrate`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Annotated, cast

import typer

from rota.app import App
from rota.cli import logs
from rota.cli.live import DevNode, Teller
from rota.cli.loading import find_reference
from rota.cli.output import Screen
from rota.cli.session import Session, command
from rota.commands import enable_commands
from rota.node import ROLES, Node, Role
from rota.store.database import Database
from rota.store.migrate import check_schema, pending_migrations

log = logging.getLogger("rota.node")

AllowCommands = Annotated[
    bool,
    typer.Option("--allow-commands", help="Run programs, too: the jobs of the task rota.command."),
]


def add_to(group: typer.Typer) -> None:
    command(group, "dev")(dev)
    command(group, "start")(start)
    command(group, "migrate")(migrate)


def dev(
    session: Session,
    reference: Annotated[
        str | None,
        typer.Argument(
            metavar="MODULE:APP",
            help="Where the app is; without it, in this folder's app.py or main.py.",
        ),
    ] = None,
    allow_commands: AllowCommands = False,
) -> None:
    """Run everything in this terminal: the database, the scheduler and a worker."""
    reference = reference or find_reference()
    app = session.load(reference)
    _allow_commands(app, allow_commands)
    teller = Teller(session.screen, reference, app)
    teller.starting()
    session.run(_dev(app, teller))


def _allow_commands(app: App, asked: bool) -> None:
    if asked:
        app.settings = app.settings.replace(allow_commands=True)
    if app.settings.allow_commands:
        enable_commands(app)


async def _dev(app: App, teller: Teller) -> None:
    await DevNode(app, teller).run()


class _LoggedNode(Node):
    def request_stop(self) -> None:
        log.info("asked to stop; %d jobs are running", self.count_running())
        super().request_stop()


def start(
    session: Session,
    reference: Annotated[str, typer.Argument(metavar="MODULE:APP")],
    role: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE", help="scheduler or worker. Repeatable; all by default."),
    ] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=LIMIT]",
            help="Work only for this queue, with so many of its jobs at a time. "
            "Repeatable; all by default.",
        ),
    ] = None,
    capability: Annotated[
        list[str] | None, typer.Option(help="What this node can do (gpu, say). Repeatable.")
    ] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Coroutines at a time.")] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Child processes for plain functions.")
    ] = None,
    allow_commands: AllowCommands = False,
    log_level: Annotated[logs.LogLevel, typer.Option()] = "info",
    log_format: Annotated[logs.LogFormat, typer.Option()] = "text",
) -> None:
    """Run a node until SIGTERM or Ctrl-C."""
    logs.configure(log_level, "json" if session.screen.as_json else log_format)
    app = session.load(reference)
    limits = {"concurrency": concurrency, "processes": processes}
    app.settings = app.settings.replace(
        **{name: value for name, value in limits.items() if value is not None}
    )
    _allow_commands(app, allow_commands)
    queues = dict(_parse_queue(text) for text in queue or [])
    roles = cast("list[Role]", role) if role else ROLES
    session.run(_start(app, roles, queues, capability or []))


def _parse_queue(text: str) -> tuple[str, int | None]:
    name, equals, limit = text.partition("=")
    if equals and not limit.isdecimal():
        raise typer.BadParameter(f"{limit!r} is not a number", param_hint="--queue")
    return name, int(limit) if equals else None


async def _start(
    app: App, roles: Sequence[Role], queues: dict[str, int | None], capabilities: list[str]
) -> None:
    await _LoggedNode(app, roles, queues, capabilities).run()


def migrate(
    session: Session,
    post: Annotated[
        bool,
        typer.Option("--post", help="Also take away what only the release before used."),
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit 1 if something is to be done.")
    ] = False,
) -> None:
    """Bring the database's schema up to this release."""
    if check:
        _tell_pending(session.screen, session.run(_pending(session.app, post)))
        return
    applied = session.run(session.app.migrate(include_post=post))
    if session.screen.as_json:
        session.screen.json({"applied": applied})
    else:
        for name in applied:
            session.screen.say(f"applied {name}")
        session.screen.say("the schema is up to date")


def _tell_pending(screen: Screen, pending: list[str]) -> None:
    if screen.as_json:
        screen.json({"pending": pending, "up_to_date": not pending})
    else:
        for name in pending:
            screen.say(f"pending {name}")
        screen.say("run `rota migrate`" if pending else "the schema is up to date")
    if pending:
        raise typer.Exit(1)


async def _pending(app: App, post: bool) -> list[str]:
    database = Database(await app.database_url(), app.settings)
    await database.open()
    try:
        async with database.connection() as connection:
            schema = app.settings.schema
            pending = await pending_migrations(connection, schema, include_post=post)
            if not pending:
                await check_schema(connection, schema)
            return [migration.name for migration in pending]
    finally:
        await database.close()
