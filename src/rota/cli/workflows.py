"""`rota workflows`: list workflows, show and start them."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.options import argument, duration, option
from rota.cli.output import pretty
from rota.cli.session import Session, callback, command
from rota.cli.submit import read_payload

Name = Annotated[str, argument("NAME", "Name of the workflow.")]

group = typer.Typer(help="List, show and start workflows.")


@callback(group)
@command(group, "list")
def list_workflows(session: Session) -> None:
    """List workflows: their versions and steps, and how many runs have not ended."""
    found = session.run(session.app.workflows.list())
    numbers = ("version", "steps", "running")
    session.screen.listing(
        found, "No workflows. `app.workflow(...)` declares one.", ("workflow", *numbers, "retired"),
        (
            (
                each.name, str(each.version), f"{len(each.definition['steps']):,}",
                f"{each.running or 0:,}", "retired" if each.retired_at else "",
            )
            for each in found
        ),
        right=numbers,
    )  # fmt: skip


@command(group, "show")
def show(
    session: Session,
    name: Name,
    version: Annotated[int | None, option("Version to show; the newest by default.")] = None,
) -> None:
    """Show a workflow's definition."""
    info = session.run(session.app.workflows.get(name, version))
    session.screen.answer(info, f"{info.name}, version {info.version}")
    if not session.screen.structured:
        session.screen.show(pretty(info.definition))


@command(group, "start")
def start(
    session: Session,
    name: Name,
    given: Annotated[
        str, argument("INPUT", "Input as a JSON object; @FILE reads a file, - standard input.")
    ] = "{}",
    key: Annotated[
        str | None, option("Idempotency key: a second start with it returns the same run.")
    ] = None,
    priority: Annotated[
        int | None, option("Priority: higher goes first; a point is worth a minute of waiting.")
    ] = None,
    deadline: Annotated[float | None, duration("Time after which the run fails: 2h.")] = None,
) -> None:
    """Start a run of a workflow."""
    run = session.run(
        session.app.runs.start(
            name, read_payload(given, "INPUT"), key=key, priority=priority, deadline=deadline
        )
    )
    document = {"id": str(run.id), "workflow": name, "existed": run.existed}
    word = "exists already" if run.existed else "started"
    session.screen.answer(document, f"run {run.id} {word}")


@command(group, "retire")
def retire(
    session: Session, name: Name, undo: Annotated[bool, option("Let runs start again.")] = False
) -> None:
    """Retire a workflow: no further runs start. Those that have started continue."""
    info = session.run(session.app.workflows.retire(name, retired=not undo))
    session.screen.answer(info, f"{'restored' if undo else 'retired'} {name}")
