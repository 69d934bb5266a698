"""`rota workflows`: list workflows, show and start them, apply files of them."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from rota.cli.file_changes import confirm, is_something, read_source, report_changes, show_changes
from rota.cli.options import DryRun, Limit, Yes, argument, duration, option
from rota.cli.output import pretty
from rota.cli.session import Session, callback, command
from rota.cli.submit import read_payload
from rota.core.workflow.model import Definition
from rota.durable.check import check_replay, history_of
from rota.durable.function import DurableFunction
from rota.errors import NotFound
from rota.files import workflow_changes as changing
from rota.files.yaml_workflows import read_workflows, write_workflows

Name = Annotated[str, argument("NAME", "Name of the workflow.")]

group = typer.Typer(help="List, show, start and apply workflows.")
MANY = 100_000  # checkpoints of one run


@callback(group)
@command(group, "list")
def list_workflows(session: Session) -> None:
    """List workflows: their versions and steps, and how many runs have not ended."""
    found = session.run(session.app.workflows.list())
    numbers = ("version", "steps", "running")
    session.screen.listing(
        found, "No workflows. `app.workflow(...)` or `rota workflows apply` declares one.",
        ("workflow", *numbers, "source", "retired"),
        (
            (
                each.name, str(each.version), f"{len(each.definition['steps']):,}",
                f"{each.running or 0:,}", each.source, "retired" if each.retired_at else "",
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


@command(group, "check-replay")
def check_replays(
    session: Session,
    reference: Annotated[str, argument("MODULE:APP", "The app whose code is checked.")],
    name: Annotated[
        str | None, argument("NAME", "Durable function to check; all by default.")
    ] = None,
    limit: Limit = 1000,
) -> None:
    """Replay the histories of running durable functions with this code, without doing anything.

    Run it with the new code before you deploy it: it fails if a run under way would contradict it.
    """
    app = session.load(reference)
    reads = session.app  # of the server, if there is one
    functions = {
        each.name: each for each in app.tasks.values() if isinstance(each, DurableFunction)
    }
    if name is not None and name not in functions:
        raise NotFound(f"this application declares no durable function {name!r}", subject=name)

    async def check() -> list[dict[str, str]]:
        problems = []
        for each in [functions[name]] if name is not None else functions.values():
            for run in await reads.runs.list(workflow=each.name, state="running", limit=limit):
                definition = await reads.workflows.definition(run.workflow, run.version)
                checkpoints = await reads.runs.history(run.id, limit=MANY)
                history = history_of(run, checkpoints, definition.code_version or 1)
                if (problem := await check_replay(each, run.input, history)) is not None:
                    problems.append({"run": str(run.id), "workflow": each.name, "problem": problem})
        return problems

    problems = session.run(check())
    session.screen.listing(
        problems, "No run contradicts this code.", ("run", "workflow", "problem"),
        ((each["run"], each["workflow"], each["problem"]) for each in problems), whole=("run",),
    )  # fmt: skip
    if problems:
        raise typer.Exit(1)


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


@command(group, "apply")
def apply(
    session: Session,
    files: Annotated[list[str], argument("FILE", "YAML files; - is standard input.")],
    prune: Annotated[
        bool, option("Retire workflows that came from files and are in none of these.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Apply workflows from YAML files: show the changes, ask, apply them.

    A changed workflow is a new version; runs that have started stay with theirs. A file with an error
    changes nothing. Applying a file again changes nothing either.
    """
    wanted = read_workflows(map(read_source, files))
    present = session.run(session.app.workflows.list())
    changing.check_owners(present, wanted)
    changing.check_inner(present, wanted)
    warnings = session.run(changing.check_tasks(session.app, wanted))
    for warning in warnings:
        session.screen.note(f"Warning: {warning}")
    found = changing.difference(present, wanted.graphs, prune=prune)
    apply_it = not dry_run and is_something(found)
    show_changes(session.screen, found)
    if apply_it:
        confirm(session, yes, from_stdin="-" in files)
        session.run(changing.apply(session.app, found, wanted.graphs))
    report_changes(session.screen, found, apply_it, warnings=warnings)


@command(group, "export")
def export(
    session: Session,
    names: Annotated[
        list[str] | None,
        argument("NAME", "Workflows to export; by default all that aren't retired."),
    ] = None,
) -> None:
    """Print workflows as YAML, as `apply` reads them."""
    if names:
        found = [session.run(session.app.workflows.get(name)) for name in dict.fromkeys(names)]
    else:
        listed = session.run(session.app.workflows.list())
        found = [info for info in listed if info.retired_at is None]
        found = [info for info in found if "code_version" not in info.definition]
    if session.screen.structured:
        session.screen.document([info.definition for info in found])
    elif found:
        definitions = [msgspec.convert(info.definition, Definition) for info in found]
        typer.echo(write_workflows(definitions), nl=False)
