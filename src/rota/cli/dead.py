"""`rota jobs dead|retry|discard`: the dead-letter list, and ways off it."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

import typer

from rota.cli.jobs import Ids, QueueOption, TaskOption, each, jobs_group, report, show_list
from rota.cli.options import Limit, Yes, option
from rota.cli.output import count
from rota.cli.session import Session, command
from rota.cli.times import relative

Failed = Annotated[bool, option("Select all failed jobs, or those that match the filters.")]
ErrorOption = Annotated[
    str | None,
    option("Only jobs with this type of error: CardDeclined or shop.CardDeclined.", "--error"),
]

_MOST = 10_000
_SHOWN = 10


@command(jobs_group, "dead")
def dead(
    session: Session,
    task: TaskOption = None,
    queue: QueueOption = None,
    rows: Annotated[bool, option("List the jobs instead of counts.", "--list")] = False,
    limit: Limit = 50,
) -> None:
    """Count the failed jobs (the dead-letter list) by task and type of error."""
    if rows:
        jobs = session.app.jobs
        show_list(
            session, session.run(jobs.list(state="failed", task=task, queue=queue, limit=limit))
        )
        return
    counts = session.run(session.app.dead.count_by_error(task=task, queue=queue))
    shown = session.screen.listing(
        counts, "No failed jobs.", ("task", "error", "count", "last"),
        (
            (row.task, row.error or "-", f"{row.count:,}", relative(row.last_at, session.now))
            for row in counts
        ),
        right=["count"],
    )  # fmt: skip
    if shown:
        session.screen.note("Run them again: rota jobs retry --failed [--task T] [--error TYPE]")


@command(jobs_group, "retry")
def retry(
    session: Session, ids: Ids = None, failed: Failed = False, task: TaskOption = None,
    queue: QueueOption = None, error: ErrorOption = None, limit: Limit = _MOST, yes: Yes = False,
) -> None:  # fmt: skip
    """Retry failed jobs now: by id, or by a filter."""
    _change(session, "retry", ids, failed, limit, yes, task=task, queue=queue, error=error)


@command(jobs_group, "discard")
def discard(
    session: Session, ids: Ids = None, failed: Failed = False, task: TaskOption = None,
    queue: QueueOption = None, error: ErrorOption = None, limit: Limit = _MOST, yes: Yes = False,
) -> None:  # fmt: skip
    """Discard failed jobs for good: by id, or by a filter."""
    _change(session, "discard", ids, failed, limit, yes, task=task, queue=queue, error=error)


def _change(
    session: Session, verb: Literal["retry", "discard"], ids: list[UUID] | None, failed: bool,
    limit: int, yes: bool, **filters: str | None,
) -> None:  # fmt: skip
    """Retry or discard the named jobs, or those that match if the person at the terminal agrees."""
    jobs = session.app.jobs
    change_one, change_many, done = {
        "retry": (jobs.retry, jobs.retry_many, "retried"),
        "discard": (jobs.discard, jobs.discard_many, "discarded"),
    }[verb]
    if bool(ids) == (failed or any(filters.values())):
        raise typer.BadParameter(
            "give either ids, or --failed with or without a filter", param_hint="ID"
        )
    if ids:
        changed: list[UUID] = []

        async def one(job_id: UUID) -> None:
            await change_one(job_id)
            changed.append(job_id)

        each(session, ids, one, {done: changed})
        return
    session.check_can_ask(yes)
    found = session.run(jobs.dead_letters(**filters, limit=limit))
    if not found:
        report(session, {done: []})
        _explain_nothing(session, **filters)
        return
    first = "the oldest " if len(found) == limit else ""
    session.confirm(f"{verb.capitalize()} {first}{count(len(found), 'failed job')}?", yes)
    report(session, {done: session.run(change_many(found))})


def _explain_nothing(session: Session, **filters: str | None) -> None:
    """Note that no failed job matches; that is an error if a filter was given, which may be wrong."""
    given = " and ".join(f"{name} {value!r}" for name, value in filters.items() if value)
    if not given:
        session.screen.note("No failed jobs.")
        return
    counts = session.run(session.app.dead.count_by_error())
    known = sorted({f"{row.task}: {row.error}" for row in counts})
    advice = (
        f"There are: {'; '.join(known[:_SHOWN])}" if known else "The dead-letter list is empty."
    )
    session.screen.note(f"No failed job has {given}. {advice}")
    raise typer.Exit(1)
