"""`rota runs`: list, show and control runs of workflows."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from rota.cli.options import Limit, argument, option
from rota.cli.output import first_line, pretty, state
from rota.cli.session import Session, callback, command
from rota.cli.submit import read_json
from rota.core.durations import format_duration
from rota.core.workflow.explain import progress_text
from rota.model import Run, RunChanged, RunCheckpoint, RunStep, SignalSent

Id = Annotated[str, argument("RUN", "Id of the run.")]
SignalPayload = Annotated[
    str, argument("PAYLOAD", "JSON value; @FILE reads a file, - standard input.")
]
Once = Annotated[str | None, option("The same text again is not another signal.", metavar="TEXT")]
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
    for problem in (found.error, found.problem):
        if isinstance(problem, dict):
            session.screen.say(first_line(str(problem.get("message"))))
    if found.status is not None:
        session.screen.say(f"status: {pretty(found.status)}")
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


@command(group, "explain")
def explain(
    session: Session,
    run: Id,
    step: Annotated[
        str | None, argument("STEP", "Name of a step; by default the whole run.")
    ] = None,
) -> None:
    """Explain what a run, or a step of it, waits for, and what to do."""
    explanation = session.run(session.app.runs.explain(run, step))
    document = {"id": run, "step": step, **msgspec.to_builtins(explanation)}
    session.screen.answer(document, explanation.sentence)


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


@command(group, "members")
def members(
    session: Session,
    run: Id,
    step: StepName,
    failed: Annotated[bool, option("Only show members that have failed.", "--failed")] = False,
    after: Annotated[int, option("Only show members after this number.")] = -1,
    limit: Limit = 100,
) -> None:
    """List the members of a map: their items, results and errors."""
    chosen = "failed" if failed else None
    found = session.run(session.app.runs.members(run, step, after=after, state=chosen, limit=limit))
    session.screen.listing(
        found, "No members.", ("number", "state", "tries", "item", "result or error"),
        (
            (
                str(each.number), state(each.state), str(each.attempt), _short(each.item),
                _short(each.result) if each.error is None else _message(each.error),
            )
            for each in found
        ),
        right=("number", "tries"),
    )  # fmt: skip


@command(group, "retry-members")
def retry_members(
    session: Session,
    run: Id,
    step: StepName,
    numbers: Annotated[
        list[int] | None, argument("NUMBER", "Numbers of members; by default all that failed.")
    ] = None,
) -> None:
    """Run failed members of a map again, and everything that comes after the map."""
    _tell(session, session.run(session.app.runs.retry_members(run, step, numbers or None)))


def _short(value: object) -> str:
    return "" if value is None else first_line(msgspec.json.encode(value).decode(), 60)


def _message(error: object) -> str:
    return first_line(str(error.get("message", "")), 60) if isinstance(error, dict) else str(error)


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


@command(group, "history")
def history(session: Session, run: Id, limit: Limit = 1000) -> None:
    """Show what a durable function has done so far, and what it waits for."""
    found = session.run(session.app.runs.history(run, limit=limit))
    session.screen.listing(
        found, "No history.", ("number", "what", "name", "state", "tries", "at", "note"),
        (
            (
                str(each.number), each.kind, each.name, state(each.state), str(each.attempt),
                f"{each.created_at:%Y-%m-%d %H:%M:%S}", _checkpoint_note(each),
            )
            for each in found
        ),
        right=("number", "tries"),
    )  # fmt: skip


@command(group, "send")
def send(
    session: Session,
    run: Id,
    signal: Annotated[str, argument("SIGNAL", "Name of the signal.")],
    payload: SignalPayload = "null",
    once: Once = None,
) -> None:
    """Send a signal to a run: its durable function takes it with ctx.wait()."""
    value = read_json(payload, "PAYLOAD")
    tell_sent(session, session.run(session.app.runs.send(run, signal, value, once=once)))


def tell_sent(session: Session, sent: SignalSent) -> None:
    if sent.existed:
        said = f"signal {sent.id}: it was sent before, and nothing happened now"
    elif sent.run_id is not None:
        said = f"signal {sent.id}: taken by run {sent.run_id}"
    else:
        said = f"signal {sent.id}: kept for the next function that waits for it"
    session.screen.answer(sent, said)


def _checkpoint_note(checkpoint: RunCheckpoint) -> str:
    if isinstance(checkpoint.error, dict):
        return first_line(str(checkpoint.error.get("message", "")), 60)
    if checkpoint.state == "waiting" and checkpoint.wake_at is not None:
        return f"until {checkpoint.wake_at:%Y-%m-%d %H:%M:%S}"
    if checkpoint.signal is not None and checkpoint.state == "waiting":
        return f"waits for signal {checkpoint.signal}, key {checkpoint.signal_key}"
    return "" if checkpoint.job_id is None else f"job {checkpoint.job_id}"


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
    if step.progress is not None:
        return progress_text(step.progress)
    return step.note or ("" if step.state != "waiting" else f"waits for {step.waits} steps")
