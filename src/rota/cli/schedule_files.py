"""`rota schedules apply|import`: schedules from YAML files and crontabs."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from rota.cli.file_changes import (
    confirm,
    is_something,
    read_source,
    report_changes,
    show_changes,
)
from rota.cli.options import DryRun, Yes, argument, option
from rota.cli.output import Screen
from rota.cli.schedules import schedules_group
from rota.cli.session import Session, command
from rota.errors import ConfigError, InvalidArguments
from rota.files import changes as changing
from rota.files.changes import Present, difference
from rota.files.crontab import Crontab, read_crontab
from rota.files.yaml_schedules import Wanted, read_schedules


@command(schedules_group, "apply")
def apply(
    session: Session,
    files: Annotated[list[str], argument("FILE", "YAML files; - is standard input.")],
    prune: Annotated[
        bool, option("Delete schedules that came from files and are in none of these.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Apply schedules from YAML files: show the changes, ask, apply them.

    A file with an error changes nothing. Applying a file again changes nothing either.
    """
    present = session.run(Present.of(session.app))
    wanted = read_schedules(map(read_source, files), present.calendars, session.app.rota.limits)
    _check_owners(present, wanted)
    found = difference(present, wanted.schedules, wanted.calendars, prune="file" if prune else None)
    _check_tasks(session, wanted)
    apply_it = not dry_run and is_something(found)
    show_changes(session.screen, found)
    if apply_it:
        confirm(session, yes, from_stdin="-" in files)
        session.run(
            changing.apply(session.app, found, wanted.schedules, wanted.calendars, source="file")
        )
    report_changes(session.screen, found, apply_it)


def _check_tasks(session: Session, wanted: Wanted) -> None:
    """Refuse arguments that a task doesn't take, and warn of unregistered tasks."""
    logging.getLogger("rota.schedules").setLevel(logging.ERROR)  # its warnings are shown here
    warned = session.run(session.app.schedules.check_tasks(wanted.schedules.values()))
    refused = [
        f"{wanted.places[each.schedule or '']}: {each.message}"
        for each in warned
        if each.code == "wrong_arguments"
    ]
    if refused:
        raise InvalidArguments("\n".join(refused))
    for each in warned:
        session.screen.note(f"Warning: {each.message}")


def _check_owners(present: Present, wanted: Wanted) -> None:
    """Refuse schedules that code declares: the next node that starts would restore them."""
    declared = [
        f"{wanted.places[name]}: schedules.{name}: is declared in code; change it there, or give "
        "this one another name"
        for name in wanted.schedules
        if name in present.schedules and present.schedules[name].source == "code"
    ]
    if declared:
        raise ConfigError("\n".join(declared))


@command(schedules_group, "import")
def import_crontab(
    session: Session,
    crontab: Annotated[str, argument("CRONTAB", "Crontab file; - is standard input.")],
    user: Annotated[
        bool, option("Read a user's crontab, without a user column. This is the default.")
    ] = False,
    system: Annotated[
        bool, option("Read a crontab with a user column, like /etc/crontab.")
    ] = False,
    tz: Annotated[
        str | None,
        option("Time zone of its times, unless it sets CRON_TZ. (default: UTC)", metavar="ZONE"),
    ] = None,
    prefix: Annotated[str, option("Prefix of the schedules' names.", metavar="NAME")] = "crontab",
    skip_bad: Annotated[bool, option("Skip lines that can't be imported.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Import a crontab: show the schedules that run its commands, ask, create them.

    They run on workers with --allow-commands. Importing it again changes only what has changed in it.
    """
    if user and system:
        raise typer.BadParameter("give --user or --system, not both", param_hint="--system")
    text = _crontab_text(crontab)
    read = read_crontab(text, with_user=system, tz=tz or "UTC", prefix=prefix)
    if tz is None and any(spec.tz == "UTC" for spec in read.schedules.values()):
        session.screen.note("Times without a zone are read as UTC; --tz changes that.")
    found = difference(session.run(Present.of(session.app)), read.schedules)
    refused = bool(read.bad) and not skip_bad
    apply_it = not dry_run and not refused and is_something(found)
    show_changes(session.screen, found, read.lines)
    _show_remarks(session.screen, read)
    if apply_it:
        confirm(session, yes, from_stdin=crontab == "-")
        session.run(changing.apply(session.app, found, read.schedules, source="crontab"))
    remarks = {"warnings": read.warnings, "bad": read.bad}
    report_changes(session.screen, found, apply_it, read.lines, **remarks)
    if refused:
        session.screen.note("Nothing was imported: fix those lines, or use --skip-bad.")
        raise typer.Exit(1)
    if apply_it:
        session.screen.note(
            "These schedules run on workers that were started with --allow-commands."
        )


def _crontab_text(name: str) -> str:
    source = read_source(name)
    try:
        text = source.text()
    except ConfigError as error:
        raise ConfigError(f"{name} {error}") from None
    if "\0" in text:
        raise ConfigError(f"{name} has NUL characters: it is not a crontab")
    return text


# -- output


def _show_remarks(screen: Screen, read: Crontab) -> None:
    if screen.structured:
        return
    for remark in read.warnings:
        screen.say(f"! line {remark.line}: {remark.message}", style="yellow")
    for remark in read.bad:
        screen.say(f"x line {remark.line}: {remark.message}", style="bold red")
