"""The command line: `rota dev`, `rota start`, `rota jobs` and the rest."""

from __future__ import annotations

import platform
import sys
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer._completion_classes import completion_init

import rota
from rota.cli import (
    audit,
    completion,
    dead,
    encrypt,
    endpoints,
    events,
    forecasts,
    grants,
    job_logs,
    jobs,
    ledger,
    namespaces,
    nodes,
    preview,
    queues,
    run,
    schedule_create,
    schedule_files,
    schedule_lint,
    sessions,
    shards,
    submit,
    tokens,
    users,
    webhooks,
)
from rota.cli.faults import EXIT_CODES, FaultGroup
from rota.cli.schedules import schedules_app
from rota.cli.session import Session, callback, command

_DAILY = "Daily"
_OPERATING = "Operating"
_ADMINISTERING = "Administering"
_OTHER = "Other"

cli = typer.Typer(
    name="rota",
    cls=FaultGroup,
    help="Cron, delayed jobs and queues that run at the right time, the right number of times.",
    epilog="Exit codes: " + " ".join(f"{code}: {text}" for code, text in EXIT_CODES.items()),
    pretty_exceptions_enable=False,
    add_completion=False,  # `rota completion`
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rota {rota.__version__}")
        raise typer.Exit


_Version = Annotated[
    bool,
    typer.Option(
        "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
    ),
]


@callback(cli)
def root(session: Session, context: typer.Context, version: _Version = False) -> None:
    session.screen.help(context)


def version(session: Session) -> None:
    """Show the version of Rota and of Python."""
    versions = {"rota": rota.__version__, "python": platform.python_version()}
    session.screen.answer(versions, f"rota {versions['rota']} (Python {versions['python']})")


jobs_group = typer.Typer(help="Submit, find, inspect and control jobs.")


@callback(jobs_group)
def jobs_root(session: Session, context: typer.Context) -> None:
    session.screen.help(context)


command(cli, "dev", _DAILY)(run.dev)
cli.add_typer(jobs_group, name="jobs", rich_help_panel=_DAILY)
for part in (submit, jobs, dead, job_logs):
    part.add_to(jobs_group)
cli.add_typer(schedules_app, name="schedules", rich_help_panel=_DAILY)
for part in (schedule_create, schedule_files, ledger, preview, schedule_lint, forecasts):
    part.add_to(schedules_app)
cli.add_typer(queues.group, name="queues", rich_help_panel=_DAILY)
command(cli, "events", _DAILY)(events.list_events)

command(cli, "start", _OPERATING)(run.start)
command(cli, "migrate", _OPERATING)(run.migrate)
command(cli, "nodes", _OPERATING)(nodes.list_nodes)
command(cli, "shards", _OPERATING)(shards.list_shards)
cli.add_typer(endpoints.group, name="endpoints", rich_help_panel=_OPERATING)
cli.add_typer(webhooks.group, name="webhooks", rich_help_panel=_OPERATING)

command(cli, "login", _ADMINISTERING)(users.login)
cli.add_typer(users.group, name="users", rich_help_panel=_ADMINISTERING)
cli.add_typer(sessions.group, name="sessions", rich_help_panel=_ADMINISTERING)
cli.add_typer(tokens.group, name="tokens", rich_help_panel=_ADMINISTERING)
cli.add_typer(namespaces.group, name="namespaces", rich_help_panel=_ADMINISTERING)
command(cli, "encrypt", _ADMINISTERING)(encrypt.encrypt)
command(cli, "grants", _ADMINISTERING)(grants.grants)
command(cli, "audit", _ADMINISTERING)(audit.list_changes)

command(cli, "completion", _OTHER)(completion.completion)
command(cli, "version", _OTHER)(version)


def main() -> Any:
    """Run the `rota` program."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Characters that a terminal can't show are no reason to end with a traceback.
            stream.reconfigure(errors="backslashreplace")
    completion_init()
    return cli()
