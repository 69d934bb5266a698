"""`rota runs`: list, show and control runs of workflows."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.options import Limit, argument, option
from rota.cli.output import first_line, state
from rota.cli.session import Session, callback, command
from rota.cli.submit import read_json
from rota.core.durations import format_duration
from rota.model import Run, RunChanged, RunStep

Id = Annotated[str, argument("RUN", "Id of the run.")]
StepName = Annotated[str, argument("STEP", "Name of the step.")]

group = typer.Typer(help="List, show and control runs of workflows.")


@callback(group)
@command(group, "list")
def list_runs(
    session: Session,
    workflow: Annotated[str | None, option("Only show runs of this workflow.")] = None,
    chosen: Annotated[
        str | None,
        option("Only show runs in this state: running, succeeded, failed, cancelled.", "--state"),
    ] = None,
    limit: Limit = 50,
) -> None:
    """List runs, newest first."""
    runs = session.run(session.app.runs.list(workflow=workflow, state=chosen, limit=limit))
    session.screen.listing(
        runs, "No runs.", ("run", "workflow", "version", "state", "started"),
        (
            (
                str(run.id), run.workflow, str(run.version), state(_shown(run)),
                f"{run.created_at:%Y-%m-%d %H:%M:%S}",
            )
            for run in runs
        ),
        right=("version",), whole=("run",),
    )  # fmt: skip


@command(group, "show")
def show(session: Session, run: Id, limit: Limit = 200) -> None:
    """Show a run and its steps."""
    found = session.run(session.app.runs.get(run))
    steps = session.run(session.app.runs.steps(run, limit=limit))
    if session.screen.structured:
        session.screen.document({"run": found, "steps": steps})
        return
    counts = f"{found.ended_steps:,} of {found.steps:,} steps have ended"
    what = f"run {found.id} of {found.workflow}, version {found.version}"
    session.screen.say(f"{what}: {_shown(found)}, {counts}")
    if isinstance(found.error, dict):
        session.screen.say(first_line(str(found.error.get("message"))))
    session.screen.listing(
        steps, "No steps.", ("step", "task", "state", "after", "took", "note"),
        (
            (
                step.name, step.task, state(step.state), ", ".join(step.after), _took(step),
                _note(step),
            )
            for step in steps
        ),
    )  # fmt: skip


@command(group, "cancel")
def cancel(session: Session, run: Id) -> None:
    """Cancel a run: close what waits, ask what runs to stop."""
    _tell(session, session.run(session.app.runs.cancel(run)))


@command(group, "pause")
def pause(session: Session, run: Id) -> None:
    """Pause a run: no further steps start. What runs continues."""
    _tell(session, session.run(session.app.runs.pause(run)))


@command(group, "resume")
def resume(session: Session, run: Id) -> None:
    """Resume a run: after a pause, or from the steps that failed or were cancelled."""
    _tell(session, session.run(session.app.runs.resume(run)))


@command(group, "retry")
def retry(session: Session, run: Id, step: StepName) -> None:
    """Run a step again, and everything that comes after it."""
    _tell(session, session.run(session.app.runs.retry(run, step)))


@command(group, "skip")
def skip(
    session: Session,
    run: Id,
    step: StepName,
    result: Annotated[str, option("Result it is given.", metavar="JSON")] = "null",
) -> None:
    """Skip a step: it counts as succeeded, without running."""
    value = read_json(result, "--result")
    _tell(session, session.run(session.app.runs.skip(run, step, value)))


def _tell(session: Session, changed: RunChanged) -> None:
    session.screen.answer(changed, f"run {changed.id}: {changed.outcome}")


def _shown(run: Run) -> str:
    if run.state == "running" and run.paused_at:
        return "paused"
    return "cancelling" if run.state == "running" and run.cancel_requested_at else run.state


def _took(step: RunStep) -> str:
    if step.started_at is None or step.ended_at is None:
        return ""
    return format_duration((step.ended_at - step.started_at).total_seconds())


def _note(step: RunStep) -> str:
    if isinstance(step.error, dict):
        return first_line(str(step.error.get("message", "")), 60)
    return step.note or ("" if step.state != "waiting" else f"waits for {step.waits} steps")
