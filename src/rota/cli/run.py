"""`rota dev`, `rota start` and `rota migrate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, cast

import typer

from rota.app import App
from rota.cli import logs
from rota.cli.loading import find_reference
from rota.cli.output import Screen
from rota.cli.session import Session
from rota.commands import enable_commands
from rota.store.changes import act_as, local_actor

# Nodes and servers are imported where they are started, so that the other commands start without them.
if TYPE_CHECKING:
    from rota.cli.live import Teller
    from rota.node import Role, ServerRole

AllowCommands = Annotated[
    bool,
    typer.Option("--allow-commands", help="Also run programs: the jobs of the task rota.command."),
]
Host = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Address to listen on. (default: ROTA_HOST)")
]
Port = Annotated[
    int | None, typer.Option(min=0, max=65_535, help="Port to listen on. (default: ROTA_PORT)")
]


def dev(
    session: Session,
    reference: Annotated[
        str | None,
        typer.Argument(
            metavar="MODULE:APP",
            help="The app to run. (default: the one in app.py or main.py)",
        ),
    ] = None,
    allow_commands: AllowCommands = False,
    port: Port = None,
) -> None:
    """Run everything in this terminal: the database, the scheduler, a worker and the server."""
    from rota.cli.live import Teller

    reference = reference or find_reference()
    app = session.load(reference)
    if port is not None:
        app.settings = app.settings.replace(port=port)
    _allow_commands(app, allow_commands)
    app.schedules.always_declare = True  # there is one release: what was saved last
    teller = Teller(session.screen, reference, app)
    teller.starting()
    act_as(local_actor("python"))  # what handlers change, they change by Python
    session.run(_dev(app, teller))


def _allow_commands(app: App, asked: bool) -> None:
    if asked:
        app.settings = app.settings.replace(allow_commands=True)
    if app.settings.allow_commands:
        enable_commands(app)


async def _dev(app: App, teller: Teller) -> None:
    from rota.cli.live import DevNode

    await DevNode(app, teller).run()


def start(
    session: Session,
    reference: Annotated[str, typer.Argument(metavar="MODULE:APP", help="The app to run.")],
    role: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE",
            help="scheduler, worker or server. Repeatable. (default: scheduler and worker)",
        ),
    ] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=LIMIT]",
            help="Only run jobs of this queue, at most LIMIT at a time. Repeatable. (default: all)",
        ),
    ] = None,
    capability: Annotated[
        list[str] | None, typer.Option(help="Capability of this node, such as gpu. Repeatable.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of coroutines at a time.")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Number of child processes for plain functions.")
    ] = None,
    allow_commands: AllowCommands = False,
    host: Host = None,
    port: Port = None,
    insecure_public: Annotated[
        bool,
        typer.Option(
            "--insecure-public",
            help="Listen on public addresses without TLS: a proxy in front of it provides it.",
        ),
    ] = False,
    log_level: Annotated[
        logs.LogLevel | None,
        typer.Option(help="Level of Rota's own log records. (default: info)"),
    ] = None,
    log_format: Annotated[
        logs.LogFormat,
        typer.Option(help="Log format, unless your application configures log handlers."),
    ] = "pretty",
) -> None:
    """Run a node until SIGTERM or Ctrl-C."""
    surroundings = logs.configure(log_level, "json" if session.screen.structured else log_format)
    app = session.load(reference)
    logs.apply_level(log_level)
    logs.learn(surroundings, app.settings)
    limits = {"concurrency": concurrency, "processes": processes, "host": host, "port": port,
              "insecure_public": insecure_public or None}  # fmt: skip
    app.settings = app.settings.replace(
        **{name: value for name, value in limits.items() if value is not None}
    )
    _allow_commands(app, allow_commands)
    queues = dict(_parse_queue(text) for text in queue or [])
    act_as(local_actor("python"))
    session.run(_start(app, cast("list[Role]", role or []), queues, capability or [], surroundings))


def _parse_queue(text: str) -> tuple[str, int | None]:
    name, equals, limit = text.partition("=")
    if equals and not limit.isdecimal():
        raise typer.BadParameter(f"{limit!r} is not a number", param_hint="--queue")
    return name, int(limit) if equals else None


async def _start(
    app: App, roles: Sequence[Role], queues: dict[str, int | None], capabilities: list[str],
    surroundings: logs.Surroundings,
) -> None:  # fmt: skip
    from rota.cli.live import LoggedNode
    from rota.node import ROLES

    roles = roles or ROLES
    server = _make_server(app) if "server" in roles else None
    node = LoggedNode(app, roles, queues, capabilities, server=server)
    surroundings.node = lambda: node.id
    await node.run()


def _make_server(app: App) -> ServerRole:
    from rota.server.serving import Server

    return Server(app)


def migrate(
    session: Session,
    post: Annotated[
        bool,
        typer.Option("--post", help="Also remove what only the previous release used."),
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit with 1 if migrations are pending.")
    ] = False,
    shards: Annotated[
        int | None,
        typer.Option(
            "--shards",
            min=1,
            max=1024,
            help="Number of shards that schedulers divide their work into; 1: a single leader. "
            "Only for a new schema. (default: 128)",
        ),
    ] = None,
) -> None:
    """Migrate the database schema to this release."""
    if shards is not None:
        session.app.settings = session.app.settings.replace(shards=shards)
    if check:
        _tell_pending(
            session.screen, session.run(session.app.connector.pending_migrations(include_post=post))
        )
        return
    applied = session.run(session.app.migrate(include_post=post))
    lines = [f"applied {name}" for name in applied] + [f"mended {each}" for each in applied.mended]
    session.screen.answer(
        {"applied": list(applied), "mended": applied.mended, "advice": applied.advice},
        *lines, "the schema is up to date",
    )  # fmt: skip
    if applied.advice:
        session.screen.note(f"Warning: {applied.advice}.")


def _tell_pending(screen: Screen, pending: list[str]) -> None:
    if screen.structured:
        screen.document({"pending": pending, "up_to_date": not pending})
    else:
        for name in pending:
            screen.say(f"pending {name}")
        screen.say("run `rota migrate`" if pending else "the schema is up to date")
    if pending:
        raise typer.Exit(1)
