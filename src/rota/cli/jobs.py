"""`rota jobs list|show|cancel|explain`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from rota.cli.options import Limit
from rota.cli.output import Screen, first_line, plain, pretty, state, table
from rota.cli.session import Session, command
from rota.cli.times import relative
from rota.core.durations import format_duration
from rota.core.explain import Explanation
from rota.errors import RotaError
from rota.model import Attempt, Failure, Job, OutcomeKind, State


def parse_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a job id; give the whole UUID") from None


def parse_state(text: str) -> str:
    try:
        return State.parse(text).label
    except RotaError as error:
        raise typer.BadParameter(str(error)) from None


def parse_outcome(text: str) -> str:
    try:
        return OutcomeKind.parse(text).label
    except RotaError as error:
        raise typer.BadParameter(str(error)) from None


Id = Annotated[
    UUID, typer.Argument(metavar="ID", parser=parse_id, show_default=False, help="Job id.")
]
Ids = Annotated[
    list[UUID] | None,
    typer.Argument(metavar="ID", parser=parse_id, show_default=False, help="Job ids."),
]
TaskOption = Annotated[str | None, typer.Option("--task", help="Only show this task.")]
QueueOption = Annotated[str | None, typer.Option("--queue", help="Only show this queue.")]
StateOption = Annotated[
    str | None,
    typer.Option(
        "--state", metavar="STATE", parser=parse_state,
        help=f"Only show this state: {', '.join(known.label for known in State)}.",
    ),
]  # fmt: skip
OutcomeOption = Annotated[
    str | None,
    typer.Option(
        "--outcome", metavar="OUTCOME", parser=parse_outcome,
        help="Only show jobs whose last attempt ended like this: "
        f"{', '.join(kind.label for kind in OutcomeKind)}.",
    ),
]  # fmt: skip


def add_to(group: typer.Typer) -> None:
    command(group, "list")(list_jobs)
    command(group, "show")(show)
    command(group, "cancel")(cancel)
    command(group, "explain")(explain)


def list_jobs(
    session: Session,
    state: StateOption = None,
    task: TaskOption = None,
    queue: QueueOption = None,
    tag: Annotated[str | None, typer.Option(help="Only show this tag.")] = None,
    outcome: OutcomeOption = None,
    limit: Limit = 50,
    before: Annotated[
        UUID | None,
        typer.Option(metavar="ID", parser=parse_id, help="Only show older jobs than this one."),
    ] = None,
) -> None:
    """List jobs, newest first."""
    jobs = session.app.jobs
    found = session.run(
        jobs.list(
            state=state,
            task=task,
            queue=queue,
            tag=tag,
            outcome=outcome,
            before=before,
            limit=limit,
        )
    )
    show_list(session, found)
    if len(found) == limit:
        session.screen.note(f"There may be more: add --before {found[-1].id}")


def show_list(session: Session, found: Sequence[Job]) -> None:
    screen = session.screen
    if not screen.listing(found, "No jobs."):
        return
    now = session.run(database_now(session))
    rows = table("id", "state", "task", "queue", "attempt", "when", right=["attempt"],
                 whole=["id", "state", "when"])  # fmt: skip
    for job in found:
        rows.add_row(
            str(job.id), state(job.state), plain(job.task), "+".join((job.queue, *job.needs)),
            f"{job.attempt}/{job.max_attempts}", when(job, now),
        )  # fmt: skip
    screen.show(rows)


async def database_now(session: Session) -> datetime:
    return await (await session.app.store()).now()


def when(job: Job, now: datetime) -> str:
    """The moment that matters most in its state."""
    if job.finished_at is not None:
        return relative(job.finished_at, now)
    if job.state == "running" and job.started_at is not None:
        return f"for {format_duration((now - job.started_at).total_seconds())}"
    return f"due {relative(job.due_at, now)}"


def show(session: Session, job_id: Id) -> None:
    """Show a job."""
    jobs, screen = session.app.jobs, session.screen
    job = session.run(jobs.get(job_id))
    explanation = session.run(jobs.explain(job_id))
    if screen.structured:
        screen.document({**msgspec.to_builtins(job), "explanation": explanation})
        return
    _show_job(screen, job, explanation, session.run(database_now(session)))


def _show_job(screen: Screen, job: Job, explanation: Explanation, now: datetime) -> None:
    screen.say(Text.assemble(state(job.state), " ", (plain(job.task), "bold"), f" {job.id}"))
    screen.say(explanation.sentence)
    screen.say("")
    screen.show(_facts(job, now))
    for title, value in (
        ("payload", job.payload),
        ("result", job.result),
        ("headers", job.headers),
    ):
        if value not in (None, {}) or title == "payload":
            screen.say(f"\n{title}", style="bold")
            screen.show(pretty(value))
    if job.attempts:
        screen.say("\nattempts that did not succeed", style="bold")
        screen.show(_attempts(job.attempts, now))
    _show_errors(screen, job)


def _facts(job: Job, now: datetime) -> Table:
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    took = None
    if job.started_at and job.finished_at:
        took = format_duration((job.finished_at - job.started_at).total_seconds())
    rows: dict[str, Any] = {
        "queue": "+".join((job.queue, *job.needs)),
        "priority": job.priority or None,
        "guarantee": job.guarantee,
        "attempt": f"{job.attempt} of {job.max_attempts}",
        "timeout": format_duration(job.timeout) if job.timeout else None,
        "key": job.key,
        "progress": _progress(job.progress),
        "created": relative(job.created_at, now),
        "due": relative(job.due_at, now),
        "started": relative(job.started_at, now) if job.started_at else None,
        "finished": relative(job.finished_at, now) if job.finished_at else None,
        "took": took,
        "node": job.node,
        "token": job.token,
        "crashes": job.crashes or None,
    }
    for name, value in rows.items():
        if value is not None:
            facts.add_row(name, plain(str(value)))
    return facts


def _progress(progress: Any) -> str | None:
    if not isinstance(progress, dict):
        return None
    done, total, message = (progress.get(name) for name in ("done", "total", "message"))
    told = f"{done:g} of {total:g}" if total else f"{done}"
    return f"{told}: {message}" if message else told


def _attempts(attempts: Sequence[Attempt], now: datetime) -> Table:
    rows = table("attempt", "outcome", "ended", "took", "error", right=["attempt", "took"])
    for attempt in attempts:
        took = "-"
        if attempt.started_at and attempt.ended_at:
            took = format_duration((attempt.ended_at - attempt.started_at).total_seconds())
        error = attempt.error
        rows.add_row(
            str(attempt.number), state(attempt.outcome), relative(attempt.ended_at, now), took,
            plain(first_line(f"{error.type}: {error.message}")) if error else "-",
        )  # fmt: skip
    return rows


def _show_errors(screen: Screen, job: Job) -> None:
    """Each traceback once: the last attempt's error is usually also the job's."""
    errors: list[tuple[str, Failure]] = [
        (f"error of attempt {attempt.number}", attempt.error)
        for attempt in job.attempts
        if attempt.error is not None
    ]
    if job.error is not None and all(job.error.message != known.message for _, known in errors):
        errors.append(("error", job.error))
    for title, error in errors:
        screen.say(f"\n{title}", style="bold")
        screen.say(f"{error.type}: {error.message}", style="red")
        if error.traceback:
            screen.say(error.traceback.rstrip(), style="dim")


def cancel(session: Session, ids: Ids = None) -> None:
    """Cancel jobs: waiting jobs never start, running jobs are asked to stop."""
    if not ids:
        raise typer.BadParameter("give at least one job id", param_hint="ID")
    answers: dict[str, list[UUID]] = {"cancelled": [], "stopping": []}

    async def one(job_id: UUID) -> None:
        done = await session.app.jobs.cancel(job_id)
        answers[done.outcome].append(job_id)

    each(session, ids, one, answers)


def each(
    session: Session,
    ids: Sequence[UUID],
    act: Callable[[UUID], Coroutine[Any, Any, None]],
    answers: dict[str, list[UUID]],
) -> None:
    """Do it to one after the other, say what came of it, and fail if any was refused."""
    refusals: list[RotaError] = []

    async def all_of_them() -> None:
        for job_id in ids:
            try:
                await act(job_id)
            except RotaError as error:
                refusals.append(error)

    session.run(all_of_them())
    report(session, answers)
    if len(refusals) == 1:
        raise refusals[0]
    if refusals:
        raise RotaError(f"{len(refusals)} of {len(ids)} were refused: "
                        + "; ".join(map(str, refusals)))  # fmt: skip


def report(session: Session, answers: dict[str, list[UUID]]) -> None:
    if session.screen.structured:
        session.screen.document(answers)
        return
    for answer, ids in answers.items():
        for job_id in ids:
            session.screen.say(f"{answer} {job_id}")


def explain(session: Session, job_id: Id) -> None:
    """Explain why a job isn't running now, or what it is doing."""
    explanation = session.run(session.app.jobs.explain(job_id))
    session.screen.answer({"id": job_id, **msgspec.to_builtins(explanation)}, explanation.sentence)
