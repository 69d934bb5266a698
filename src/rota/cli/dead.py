"""`rota jobs dead|retry|discard`: the dead-letter list, and ways off it."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

import typer

from rota.cli.jobs import Ids, QueueOption, TaskOption, each, report, show_list
from rota.cli.jobs import database_now as now_of
from rota.cli.options import Limit, Yes
from rota.cli.output import plain, table
from rota.cli.session import Session, command
from rota.cli.times import relative

Failed = Annotated[
    bool, typer.Option("--failed", help="Select all failed jobs, or those that match the filters.")
]
ErrorOption = Annotated[
    str | None,
    typer.Option(
        "--error", help="Only select this type of error: CardDeclined or shop.CardDeclined."
    ),
]

_MOST = 10_000
_SHOWN = 10


def add_to(group: typer.Typer) -> None:
    command(group, "dead")(dead)
    command(group, "retry")(retry)
    command(group, "discard")(discard)


def dead(
    session: Session,
    task: TaskOption = None,
    queue: QueueOption = None,
    rows: Annotated[bool, typer.Option("--list", help="List the jobs instead of counts.")] = False,
    limit: Limit = 50,
) -> None:
    """Count the failed jobs (the dead-letter list) by task and type of error."""
    screen = session.screen
    if rows:
        jobs = session.app.jobs
        show_list(
            session, session.run(jobs.list(state="failed", task=task, queue=queue, limit=limit))
        )
        return
    counts = session.run(_count(session, task, queue))
    if not screen.listing(counts, "No failed jobs."):
        return
    now = session.run(now_of(session))
    shown = table("task", "error", "count", "last", right=["count"])
    for row in counts:
        error = plain(row["error"] or "-")
        shown.add_row(plain(row["task"]), error, f"{row['count']:,}", relative(row["last_at"], now))
    screen.show(shown)
    screen.note("Run them again: rota jobs retry --failed [--task T] [--error TYPE]")


async def _count(session: Session, task: str | None, queue: str | None) -> list[dict[str, Any]]:
    store = await session.app.store()
    return await store.count_dead(session.app.settings.namespace, task=task, queue=queue)


def retry(
    session: Session,
    ids: Ids = None,
    failed: Failed = False,
    task: TaskOption = None,
    queue: QueueOption = None,
    error: ErrorOption = None,
    limit: Limit = _MOST,
    yes: Yes = False,
) -> None:
    """Retry failed jobs now: by id, or by a filter."""
    retried: list[UUID] = []

    async def one(job_id: UUID) -> None:
        await session.app.jobs.retry(job_id)
        retried.append(job_id)

    if _by_id(ids, failed, task, queue, error):
        each(session, ids or [], one, {"retried": retried})
    elif chosen := _choose(session, "retry", yes, limit, task=task, queue=queue, error=error):
        report(session, {"retried": session.run(session.app.jobs.retry_many(chosen))})
    else:
        _nothing(session, "retried", task=task, queue=queue, error=error)


def discard(
    session: Session,
    ids: Ids = None,
    failed: Failed = False,
    task: TaskOption = None,
    queue: QueueOption = None,
    error: ErrorOption = None,
    limit: Limit = _MOST,
    yes: Yes = False,
) -> None:
    """Discard failed jobs for good: by id, or by a filter."""
    discarded: list[UUID] = []

    async def one(job_id: UUID) -> None:
        await session.app.jobs.discard(job_id)
        discarded.append(job_id)

    if _by_id(ids, failed, task, queue, error):
        each(session, ids or [], one, {"discarded": discarded})
    elif chosen := _choose(session, "discard", yes, limit, task=task, queue=queue, error=error):
        report(session, {"discarded": session.run(session.app.jobs.discard_many(chosen))})
    else:
        _nothing(session, "discarded", task=task, queue=queue, error=error)


def _by_id(ids: list[UUID] | None, failed: bool, *filters: str | None) -> bool:
    """Whether the jobs are named; otherwise they are described."""
    described = failed or any(filters)
    if bool(ids) == described:
        raise typer.BadParameter("give either ids, or --failed with or without a filter",
                                 param_hint="ID")  # fmt: skip
    return bool(ids)


def _nothing(session: Session, answer: str, **filters: str | None) -> None:
    """Say that no failed job matches; it is an error if a filter was given, which may be mistaken."""
    report(session, {answer: []})
    said = " and ".join(f"{name} {value!r}" for name, value in filters.items() if value)
    if not said:
        session.screen.note("No failed jobs.")
        return
    counts = session.run(_count(session, None, None))
    known = sorted({f"{row['task']}: {row['error']}" for row in counts})[:_SHOWN]
    advice = f" There are: {'; '.join(known)}" if known else " The dead-letter list is empty."
    session.screen.note(f"No failed job has {said}.{advice}")
    raise typer.Exit(1)


def _choose(
    session: Session, verb: str, yes: bool, limit: int, **filters: str | None
) -> list[UUID]:
    """Return the failed jobs that match, if the person at the terminal agrees."""
    session.check_can_ask(yes)
    found = session.run(session.app.jobs.dead_letters(**filters, limit=limit))
    if not found:
        return []
    jobs = "1 failed job" if len(found) == 1 else f"{len(found):,} failed jobs"
    first = "the oldest " if len(found) == limit else ""
    session.confirm(f"{verb.capitalize()} {first}{jobs}?", yes)
    return found
