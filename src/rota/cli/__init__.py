"""The command line: `rota dev`, `rota start`, `rota jobs` and the rest."""

from __future__ import annotations

import platform
import sys
from io import TextIOWrapper
from typing import Annotated, Any

import typer

import rota
from rota.cli import (
    audit,
    dead,
    encrypt,
    endpoints,
    events,
    forecasts,
    grants,
    job_logs,
    jobs,
    ledger,
    login,
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
    webhooks,
)
from rota.cli.faults import FaultGroup
from rota.cli.schedules import schedules_app
from rota.cli.session import Session, callback, command

cli = typer.Typer(
    name="rota",
    cls=FaultGroup,
    help="Cron, delayed jobs and queues that run at the right time, the right number of times.",
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rota {rota.__version__}")
        raise typer.Exit


_Version = Annotated[
    bool,
    typer.Option("--version", callback=_show_version, is_eager=True, help="Show it, and end."),
]


@callback(cli)
def root(session: Session, context: typer.Context, version: _Version = False) -> None:
    session.screen.help(context)


@command(cli, "version")
def version(session: Session) -> None:
    """The version of Rota, and of the Python it runs on."""
    versions = {"rota": rota.__version__, "python": platform.python_version()}
    if session.screen.as_json:
        session.screen.json(versions)
    else:
        session.screen.say(f"rota {versions['rota']} (Python {versions['python']})")


jobs_group = typer.Typer(help="Submit, find, inspect and steer jobs.")


@callback(jobs_group)
def jobs_root(session: Session, context: typer.Context) -> None:
    session.screen.help(context)


run.add_to(cli)
cli.add_typer(jobs_group, name="jobs")
submit.add_to(jobs_group)
jobs.add_to(jobs_group)
dead.add_to(jobs_group)
job_logs.add_to(jobs_group)
cli.add_typer(queues.group, name="queues")
cli.add_typer(schedules_app, name="schedules")
for part in (schedule_create, schedule_files, ledger, preview, schedule_lint, forecasts):
    part.add_to(schedules_app)
nodes.add_to(cli)
cli.add_typer(tokens.group, name="tokens")
cli.add_typer(sessions.group, name="sessions")
cli.add_typer(namespaces.group, name="namespaces")
encrypt.add_to(cli, namespaces.group)
login.add_to(cli)
shards.add_to(cli)
events.add_to(cli)
audit.add_to(cli)
grants.add_to(cli)
cli.add_typer(webhooks.group, name="webhooks")
cli.add_typer(endpoints.group, name="endpoints")


def main() -> Any:
    """What the `rota` program runs."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # What a terminal can't show is no reason to end with a traceback.
            stream.reconfigure(errors="backslashreplace")
    return cli()
