"""`rota dev`, `rota start` and `rota migrate`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, cast

import typer

from rota.app import App
from rota.cli import logs
from rota.cli.loading import find_reference
from rota.cli.options import argument, given, option
from rota.cli.session import Session
from rota.commands import enable_commands
from rota.core.resources import parse_pairs
from rota.errors import ConfigError
from rota.lib.redaction import secrets_of
from rota.store.changes import act_as, local_actor

# Nodes and servers are imported where they are started, so that the other commands start without them.
if TYPE_CHECKING:
    from rota.node import Role, ServerRole

AllowCommands = Annotated[bool, option("Also run programs: the jobs of the task rota.command.")]
Port = Annotated[int | None, option("Port to listen on. (default: ROTA_PORT)", min=0, max=65_535)]


def dev(
    session: Session,
    reference: Annotated[
        str | None,
        argument("MODULE:APP", "The app to run. (default: the one in app.py or main.py)"),
    ] = None,
    allow_commands: AllowCommands = False,
    port: Port = None,
) -> None:
    """Run everything in this terminal: the database, the scheduler, a worker and the server."""
    from rota.cli.live import DevNode, DevOutput

    reference = reference or find_reference()
    app = session.load(reference)
    if port is not None:
        app.settings = app.settings.replace(port=port)
    _allow_commands(app, allow_commands)
    app.schedules.always_declare = True  # a single release runs: the code as it was saved last
    output = DevOutput(session.screen, reference, app)
    output.starting()
    act_as(local_actor("python"))  # of the changes that handlers make
    session.run_node(DevNode(app, output).run())


def _allow_commands(app: App, asked: bool) -> None:
    if asked:
        app.settings = app.settings.replace(allow_commands=True)
    if app.settings.allow_commands:
        enable_commands(app)


def start(
    session: Session,
    reference: Annotated[
        str | None,
        argument("MODULE:APP", "The app to run. Schedulers and servers need none. (default: ROTA_APP)",
                 envvar="ROTA_APP", show_envvar=False),
    ] = None,
    role: Annotated[
        list[str] | None,
        option("scheduler, worker, server or relay. Repeatable. (default: scheduler and worker)",
               metavar="ROLE"),
    ] = None,
    queue: Annotated[
        list[str] | None,
        option("Only run jobs of this queue, at most LIMIT at a time. Repeatable. (default: all)",
               metavar="NAME[=LIMIT]"),
    ] = None,
    capability: Annotated[
        list[str] | None, option("Capability of this node, such as gpu. Repeatable.")
    ] = None,
    resource: Annotated[
        list[str] | None,
        option("What this node has for jobs that ask for it, such as gpu=2 or memory=16GB. Repeatable. "
               "(default: ROTA_RESOURCES; memory and cpu of the container or the machine)",
               metavar="NAME=AMOUNT"),
    ] = None,
    label: Annotated[
        list[str] | None, option("Label of this node, which jobs may be near to. Repeatable.")
    ] = None,
    concurrency: Annotated[
        int | None, option("Maximum number of coroutines at a time.", min=1)
    ] = None,
    processes: Annotated[
        int | None, option("Number of child processes for plain functions.", min=1)
    ] = None,
    dispatch: Annotated[
        str | None,
        option("Take jobs from a broker, without the database, by way of a relay. Only the role "
               "worker. (default: ROTA_DISPATCH)", metavar="URL"),
    ] = None,
    allow_commands: AllowCommands = False,
    host: Annotated[
        str | None, option("Address to listen on. (default: ROTA_HOST)", metavar="ADDRESS")
    ] = None,
    port: Port = None,
    insecure_public: Annotated[
        bool, option("Listen on public addresses without TLS, behind a proxy that provides it.")
    ] = False,
    log_level: Annotated[
        logs.LogLevel | None, option("Level of Rota's own log records. (default: info)")
    ] = None,
    log_format: Annotated[
        logs.LogFormat, option("Log format, unless your application configures log handlers.")
    ] = "pretty",
) -> None:  # fmt: skip
    """Run a node until SIGTERM or Ctrl-C."""
    from rota.cli.live import LoggedNode
    from rota.node import ROLES

    dispatch = dispatch or os.environ.get("ROTA_DISPATCH")
    by_broker = dispatch is not None and (role or ["worker"]) == ["worker"]
    log_fields = logs.configure(log_level, "json" if session.screen.structured else log_format)
    app = _app_of(session, reference, role or ROLES)
    logs.apply_level(log_level)
    log_fields.redactor.learn(secrets_of(app.settings))
    app.settings = app.settings.replace(
        **given(
            concurrency=concurrency, processes=processes, host=host, port=port, dispatch=dispatch,
            insecure_public=insecure_public or None,
        )
    )  # fmt: skip
    _allow_commands(app, allow_commands)
    queues = dict(_parse_queue(text) for text in queue or [])
    act_as(local_actor("python"))
    if by_broker:
        _run_by_broker(
            session,
            app,
            queues,
            capability or [],
            label or [],
            parse_pairs(resource or []),
            log_fields,
        )
        return

    async def run() -> None:
        roles = cast("list[Role]", role) or ROLES
        server: ServerRole | None = None
        if "server" in roles:
            from rota.server.serving import Server

            server = Server(app)
        relay: ServerRole | None = None
        if "relay" in roles:
            from rota.server.dispatch.relay import Relay

            relay = Relay(app)
        kind = LoggedNode
        if os.environ.get("ROTA_SUPERVISED"):
            from rota.cli.supervised import SupervisedNode

            kind = SupervisedNode
        node = kind(
            app, roles, queues, capability or [], server=server, relay=relay, labels=label or [],
            resources=parse_pairs(resource or []),
        )  # fmt: skip
        log_fields.node = lambda: node.id
        await node.run()

    session.run_node(run())


def _run_by_broker(
    session: Session, app: App, queues: dict[str, int | None], capabilities: Sequence[str],
    labels: Sequence[str], resources: Mapping[str, str], log_fields: logs.LogFields,
) -> None:  # fmt: skip
    """Run a worker that takes its jobs from a broker."""
    from rota.cli.dispatched import LoggedDispatchedNode

    if any(limit is not None for limit in queues.values()):
        raise ConfigError(
            "--queue NAME=LIMIT needs the database: with --dispatch, give the name only"
        )

    async def run() -> None:
        node = LoggedDispatchedNode(
            app, list(queues), capabilities, labels=labels, resources=resources
        )
        log_fields.node = lambda: node.id
        await node.run()

    session.run_node(run())


def _app_of(session: Session, reference: str | None, roles: Sequence[str]) -> App:
    """Return the app to run. Without one, there is nothing for a worker to do."""
    if reference:
        return session.load(reference)
    if "worker" in roles:
        raise ConfigError(
            "a worker needs an app, whose tasks it runs: name it, as in "
            "`rota start shop.tasks:app`, or in ROTA_APP"
        )
    app = session.app
    # It declares nothing, and must not speak for the application that does.
    app.settings = app.settings.replace(app_name="", release="")
    app.prepare()
    return app


def _parse_queue(text: str) -> tuple[str, int | None]:
    name, equals, limit = text.partition("=")
    if equals and not limit.isdecimal():
        raise typer.BadParameter(f"{limit!r} is not a number", param_hint="--queue")
    return name, int(limit) if equals else None


def migrate(
    session: Session,
    post: Annotated[bool, option("Also remove what only the previous release used.")] = False,
    check: Annotated[
        bool, option("Change nothing; exit with 1 if migrations are pending.")
    ] = False,
    shards: Annotated[
        int | None,
        option("Number of shards that schedulers divide their work into; 1: a single leader. Only "
               "for a new schema. (default: 128)", min=1, max=1024),
    ] = None,
) -> None:  # fmt: skip
    """Migrate the database schema to this release."""
    if shards is not None:
        session.app.settings = session.app.settings.replace(shards=shards)
    if check:
        pending = session.run(session.app.connector.pending_migrations(include_post=post))
        session.screen.answer(
            {"pending": pending, "up_to_date": not pending},
            *(f"pending {name}" for name in pending),
            "run `rota migrate`" if pending else "the schema is up to date",
        )
        raise typer.Exit(1 if pending else 0)
    applied = session.run(session.app.migrate(include_post=post))
    lines = [f"applied {name}" for name in applied] + [f"mended {each}" for each in applied.mended]
    session.screen.answer(
        {"applied": list(applied), "mended": applied.mended, "advice": applied.advice},
        *lines, "the schema is up to date",
    )  # fmt: skip
    if applied.advice:
        session.screen.note(f"Warning: {applied.advice}.")
