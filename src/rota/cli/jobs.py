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

from rota.cli.options import Limit, argument, option
from rota.cli.output import Screen, facts, first_line, plain, pretty, state, table
from rota.cli.session import Session, command, make_group
from rota.cli.times import relative
from rota.core.durations import format_duration
from rota.core.resources import said_public
from rota.errors import RotaError
from rota.model import Attempt, Failure, Job, OutcomeKind, State

jobs_group = make_group("Submit, find, inspect and control jobs.")


def parse_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not an id; give the whole UUID") from None


def _parse_label(kind: type[State | OutcomeKind]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        try:
            return kind.parse(text).label
        except RotaError as error:
            raise typer.BadParameter(str(error)) from None

    return parse


Id = Annotated[UUID, argument("ID", "Job id.", parser=parse_id, show_default=False)]
Ids = Annotated[list[UUID] | None, argument("ID", "Job ids.", parser=parse_id, show_default=False)]
TaskOption = Annotated[str | None, option("Only jobs of this task.", "--task")]
QueueOption = Annotated[str | None, option("Only jobs of this queue.", "--queue")]
StateOption = Annotated[
    str | None,
    option(f"Only jobs in this state: {', '.join(known.label for known in State)}.",
           metavar="STATE", parser=_parse_label(State)),
]  # fmt: skip
OutcomeOption = Annotated[
    str | None,
    option("Only jobs whose last attempt had this outcome: "
           f"{', '.join(kind.label for kind in OutcomeKind)}.",
           metavar="OUTCOME", parser=_parse_label(OutcomeKind)),
]  # fmt: skip


@command(jobs_group, "list")
def list_jobs(
    session: Session,
    state: StateOption = None,
    task: TaskOption = None,
    queue: QueueOption = None,
    tag: Annotated[str | None, option("Only jobs with this tag.")] = None,
    outcome: OutcomeOption = None,
    limit: Limit = 50,
    before: Annotated[
        UUID | None, option("Only jobs older than this one.", metavar="ID", parser=parse_id)
    ] = None,
) -> None:
    """List jobs, newest first."""
    found, until = session.run(
        session.app.jobs.look_whole(
            state=state, task=task, queue=queue, tag=tag, outcome=outcome, before=before, limit=limit
        )
    )  # fmt: skip
    show_list(session, found)
    if until is not None:
        session.screen.note(f"That is of the newest 20,000 jobs. To go on: add --before {until}")
    elif len(found) == limit:
        session.screen.note(f"There may be more: add --before {found[-1].id}")


def show_list(session: Session, found: Sequence[Job]) -> None:
    session.screen.listing(
        found, "No jobs.", ("id", "state", "task", "queue", "attempt", "when"),
        (
            (str(job.id), state(job.state), job.task, "+".join((job.queue, *job.needs)),
             f"{job.attempt}/{job.max_attempts}", when(job, session.now))
            for job in found
        ),
        right=["attempt"], whole=["id", "state", "when"],
    )  # fmt: skip


def when(job: Job, now: datetime) -> str:
    """Format the time that matters most in the job's state: of its end, its start, or due."""
    if job.finished_at is not None:
        return relative(job.finished_at, now)
    if job.state == "running" and job.started_at is not None:
        return f"for {_took(job.started_at, now)}"
    return f"due {relative(job.due_at, now)}"


def _took(start: datetime | None, end: datetime | None) -> str | None:
    return format_duration((end - start).total_seconds()) if start and end else None


@command(jobs_group, "show")
def show(session: Session, job_id: Id) -> None:
    """Show a job: its state, payload, result, attempts and errors."""
    jobs, screen = session.app.jobs, session.screen
    job = session.run(jobs.get(job_id))
    explanation = session.run(jobs.explain(job_id))
    if screen.structured:
        screen.document({**msgspec.to_builtins(job), "explanation": explanation})
        return
    screen.say(Text.assemble(state(job.state), " ", (plain(job.task), "bold"), f" {job.id}"))
    screen.say(explanation.sentence)
    screen.say("")
    screen.show(_facts(job, session.now))
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
        screen.show(_attempts(job.attempts, session.now))
    _show_errors(screen, job)


def _facts(job: Job, now: datetime) -> Table:
    return facts(
        {
            "queue": "+".join((job.queue, *job.needs)),
            "resources": said_public(job.resources) or None,
            "near": job.near,
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
            "took": _took(job.started_at, job.finished_at),
            "node": job.node,
            "token": job.token,
            "crashes": job.crashes or None,
        }
    )


def _progress(progress: Any) -> str | None:
    if not isinstance(progress, dict):
        return None
    done, total, message = (progress.get(name) for name in ("done", "total", "message"))
    share = f"{done:g} of {total:g}" if total else f"{done}"
    return f"{share}: {message}" if message else share


def _attempts(attempts: Sequence[Attempt], now: datetime) -> Table:
    rows = (
        (str(each.number), state(each.outcome), relative(each.ended_at, now),
         _took(each.started_at, each.ended_at) or "-",
         first_line(f"{each.error.type}: {each.error.message}") if each.error else "-")
        for each in attempts
    )  # fmt: skip
    columns = ("attempt", "outcome", "ended", "took", "error")
    return table(columns, rows, right=["attempt", "took"])


def _show_errors(screen: Screen, job: Job) -> None:
    """Show each error once: the last attempt's error is usually also the job's."""
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


@command(jobs_group, "cancel")
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
    """Act on one job after the other, report the outcome, and fail if any was refused."""
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
    lines = (f"{answer} {job_id}" for answer, ids in answers.items() for job_id in ids)
    session.screen.answer(answers, *lines)


@command(jobs_group, "explain")
def explain(session: Session, job_id: Id) -> None:
    """Explain why a job isn't running now, or what it is doing."""
    explanation = session.run(session.app.jobs.explain(job_id))
    session.screen.answer({"id": job_id, **msgspec.to_builtins(explanation)}, explanation.sentence)
