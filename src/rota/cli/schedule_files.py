"""`rota schedules apply`: schedules from YAML files."""

from __future__ import annotations

import logging
from typing import Annotated

from rota.cli.file_changes import (
    confirm,
    is_something,
    read_source,
    report_changes,
    show_changes,
)
from rota.cli.options import DryRun, Yes, argument, option
from rota.cli.schedules import schedules_group
from rota.cli.session import Session, command
from rota.errors import ConfigError, InvalidArguments
from rota.files import changes as changing
from rota.files.changes import Present, difference
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
