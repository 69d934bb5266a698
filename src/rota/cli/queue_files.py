"""`rota queues apply` and `export`: settings of queues in YAML files."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.file_changes import confirm, is_something, read_source, report_changes, show_changes
from rota.cli.options import DryRun, Yes, argument, option
from rota.cli.queues import group
from rota.cli.session import Session, command
from rota.files import queue_changes as changing
from rota.files.yaml_queues import read_queues, write_queues
from rota.operations.queues import unknown_queue


@command(group, "apply")
def apply(
    session: Session,
    files: Annotated[list[str], argument("FILE", "YAML files; - is standard input.")],
    prune: Annotated[
        bool, option("Take away the settings of all queues that are in none of these files.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Apply settings of queues from YAML files: show the changes, ask, apply them.

    What a file leaves out of a queue is at its default. A file with an error changes nothing. Applying a
    file again changes nothing either.
    """
    wanted = read_queues(map(read_source, files))
    present = session.run(changing.read_present(session.app, wanted.queues))
    found = changing.difference(present, wanted.queues, prune=prune)
    apply_it = not dry_run and is_something(found)
    show_changes(session.screen, found)
    if apply_it:
        confirm(session, yes, from_stdin="-" in files)
        session.run(changing.apply(session.app, found, present, wanted.queues))
    report_changes(session.screen, found, apply_it)


@command(group, "export")
def export(
    session: Session,
    names: Annotated[list[str] | None, argument("NAME", "Queues; all that have settings.")] = None,
) -> None:
    """Print the settings of queues as YAML, as `apply` reads them."""
    present = session.run(changing.read_present(session.app))
    missing = [name for name in names or () if name not in present]
    if missing:
        raise unknown_queue(missing[0], list(present))
    wanted = names or [name for name, one in present.items() if one.settings or one.weights]
    chosen = {name: present[name] for name in wanted}
    if session.screen.structured:
        session.screen.document(
            {name: {**one.settings, "weights": one.weights} for name, one in chosen.items()}
        )
    elif chosen:
        typer.echo(write_queues(chosen), nl=False)
