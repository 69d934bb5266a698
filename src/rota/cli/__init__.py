"""The command line: `rota dev`, `rota start`, `rota jobs` and the rest."""

from __future__ import annotations

import platform
import sys
from io import TextIOWrapper
from typing import Annotated, Any, Literal

import typer
from typer._completion_classes import completion_init
from typer._completion_shared import get_completion_script

import rota
from rota.cli import (
    alerts,
    audit,
    bulk,
    cluster,
    dead,
    doctor,
    encrypt,
    endpoints,
    events,
    forecasts,
    grants,
    history,
    job_logs,
    login,
    maintenance,
    namespaces,
    persons,
    pool,
    pools,
    preview,
    queue_files,
    queues,
    recover,
    roles,
    run,
    runs,
    schedule_create,
    schedule_files,
    schedule_history,
    schedule_import,
    sessions,
    signals,
    sinks,
    submit,
    tasks,
    tokens,
    triggers,
    users,
    watch,
    webhooks,
    workflows,
)
from rota.cli.faults import EXIT_CODES, FaultGroup
from rota.cli.jobs import jobs_group
from rota.cli.options import argument, option
from rota.cli.schedules import schedules_group
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
        "--version",
        callback=_show_version,
        is_eager=True,
        help="Show the version and exit.",
        metavar="",
    ),
]


@callback(cli)
def root(session: Session, version: _Version = False) -> None:
    typer.echo(session.context.get_help())


def version(
    session: Session,
    check: Annotated[
        bool, option("Also compare with the schema of the database; exit with 1 if it doesn't fit.")
    ] = False,
    wait: Annotated[
        float, option("With --check: wait this many seconds for a schema that fits.", min=0)
    ] = 0,
) -> None:
    """Show the version of Rota and of Python."""
    versions = {"rota": rota.__version__, "python": platform.python_version()}
    shown = f"rota {versions['rota']} (Python {versions['python']})"
    if not check:
        session.screen.answer(versions, shown)
        return
    fit = session.run(session.app.connector.schema_fit(wait=wait))
    lines = [f"schema: {fit.verdict}"]
    if fit.post:
        lines.append(f"after the last node of the release before: {', '.join(fit.post)}")
    session.screen.answer({**versions, "schema": fit}, shown, *lines)
    raise typer.Exit(0 if fit.fits else 1)


def completion(
    session: Session,
    shell: Annotated[Literal["bash", "zsh", "fish"], argument("SHELL", "bash, zsh or fish.")],
) -> None:
    """Print the completion script of a shell.

    Load it in your shell's start file: `source <(rota completion bash)` in ~/.bashrc, the same with zsh
    in ~/.zshrc, or `rota completion fish | source` in ~/.config/fish/config.fish.
    """
    script = get_completion_script(prog_name="rota", complete_var="_ROTA_COMPLETE", shell=shell)
    session.screen.answer({"shell": shell, "script": script}, script)


# Their commands register themselves with these groups.
_JOBS = (submit, dead, job_logs, watch, bulk)
_QUEUES = (queue_files,)
_SCHEDULES = (
    schedule_create,
    schedule_files,
    schedule_import,
    schedule_history,
    preview,
    forecasts,
)

# The order of their commands in help texts: what one does first comes first.
_ORDER = {
    jobs_group: "submit list show watch logs explain cancel retry discard dead changes undo",
    schedules_group: "create list show pause resume trigger delete occurrences backfill preview "
    "forecast audit lint apply import declare",
}
for _group, _names in _ORDER.items():
    _by_name = {one.name: one for one in _group.registered_commands}
    _group.registered_commands = [_by_name.pop(name) for name in _names.split()]
    assert not _by_name, f"without a place in the help text: {', '.join(map(str, _by_name))}"

command(cli, "dev", _DAILY, database_only=True)(run.dev)
cli.add_typer(jobs_group, name="jobs", rich_help_panel=_DAILY)
cli.add_typer(schedules_group, name="schedules", rich_help_panel=_DAILY)
cli.add_typer(workflows.group, name="workflows", rich_help_panel=_DAILY)
cli.add_typer(runs.group, name="runs", rich_help_panel=_DAILY)
cli.add_typer(signals.group, name="signals", rich_help_panel=_DAILY)
cli.add_typer(queues.group, name="queues", rich_help_panel=_DAILY)
cli.add_typer(maintenance.group, name="maintenance", rich_help_panel=_DAILY)
cli.add_typer(pools.group, name="pools", rich_help_panel=_DAILY)
cli.add_typer(alerts.group, name="alerts", rich_help_panel=_DAILY)
cli.add_typer(tasks.group, name="tasks", rich_help_panel=_DAILY)
command(cli, "events", _DAILY)(events.list_events)
cli.add_typer(history.group, name="history", rich_help_panel=_DAILY)

command(cli, "start", _OPERATING, database_only=True)(run.start)
command(cli, "pool", _OPERATING, database_only=True)(pool.pool)
command(cli, "migrate", _OPERATING, database_only=True)(run.migrate)
command(cli, "recover", _OPERATING, database_only=True)(recover.recover)
command(cli, "doctor", _OPERATING)(doctor.doctor)
cli.add_typer(cluster.nodes, name="nodes", rich_help_panel=_OPERATING)
command(cli, "shards", _OPERATING)(cluster.list_shards)
cli.add_typer(endpoints.group, name="endpoints", rich_help_panel=_OPERATING)
cli.add_typer(triggers.group, name="triggers", rich_help_panel=_OPERATING)
cli.add_typer(sinks.group, name="sinks", rich_help_panel=_OPERATING)
cli.add_typer(webhooks.group, name="webhooks", rich_help_panel=_OPERATING)

command(cli, "login", _ADMINISTERING)(login.login)
cli.add_typer(login.group, name="profiles", rich_help_panel=_ADMINISTERING)
cli.add_typer(users.group, name="users", rich_help_panel=_ADMINISTERING)
cli.add_typer(roles.group, name="roles", rich_help_panel=_ADMINISTERING)
cli.add_typer(sessions.group, name="sessions", rich_help_panel=_ADMINISTERING)
cli.add_typer(tokens.group, name="tokens", rich_help_panel=_ADMINISTERING)
cli.add_typer(namespaces.group, name="namespaces", rich_help_panel=_ADMINISTERING)
command(cli, "encrypt", _ADMINISTERING, database_only=True)(encrypt.encrypt)
cli.add_typer(persons.group, name="persons", rich_help_panel=_ADMINISTERING)
command(cli, "grants", _ADMINISTERING, database_only=True)(grants.grants)
cli.add_typer(audit.group, name="audit", rich_help_panel=_ADMINISTERING)

command(cli, "completion", _OTHER)(completion)
command(cli, "version", _OTHER, database_only=True)(version)


def main() -> Any:
    """Run the `rota` program."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A character that the terminal can't show must not end the command with a traceback.
            stream.reconfigure(errors="backslashreplace")
    completion_init()
    return cli()
