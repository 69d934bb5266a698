"""`rota schedules`: list, show, pause, resume, trigger, declare and delete schedules."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import timedelta
from typing import Annotated

import msgspec
import typer

from rota.cli.clock_changes import Previewed, previewed
from rota.cli.options import TIMES, Yes, argument, duration, moment, option
from rota.cli.schedule_views import show_schedule, show_schedules
from rota.cli.session import Session, callback, command
from rota.cli.times import When, relative
from rota.core.time.status import OccurrenceStatus, ScheduleStatus
from rota.errors import ConfigError

Name = Annotated[str, argument("NAME", "Name of the schedule.")]

_NEXT = 5
_LAST = 10

schedules_group = typer.Typer(help="Create, inspect and control schedules.")


@callback(schedules_group)
def root(session: Session) -> None:
    """Create, inspect and control schedules. Without a command, list them."""
    list_schedules(session)


@command(schedules_group, "list")
def list_schedules(
    session: Session,
    task: Annotated[str | None, option("Only schedules of this task or workflow.")] = None,
    tag: Annotated[str | None, option("Only schedules with this tag.")] = None,
) -> None:
    """List schedules: their rules, next occurrences and last outcomes."""
    pages = _pages_with_latest(session, session.app.schedules.pages(task=task, tag=tag))
    if session.screen.structured:
        session.screen.documents(
            {**msgspec.to_builtins(one), "last": last.get(one.name)}
            for page, last in pages for one in page
        )  # fmt: skip
        return
    empty = True
    for page, last in pages:
        show_schedules(session.screen, page, last, session.now, header=empty)
        empty = False
    if empty:
        session.screen.note(
            "No schedules. Make one: rota schedules create NAME --task T --cron '0 9 * * *'"
        )


def _pages_with_latest(
    session: Session, pages: AsyncIterator[Sequence[ScheduleStatus]]
) -> Iterator[tuple[Sequence[ScheduleStatus], dict[str, OccurrenceStatus]]]:
    """Return pages of schedules with the last occurrence of each, as they are read."""
    while (page := session.run(_next_page(pages))) is not None:
        latest = session.run(session.app.schedules.latest_of([one.name for one in page]))
        yield page, {row.schedule: row.occurrence for row in latest}


async def _next_page(
    pages: AsyncIterator[Sequence[ScheduleStatus]],
) -> Sequence[ScheduleStatus] | None:
    return await anext(pages, None)


@command(schedules_group, "show")
def show(session: Session, name: Name) -> None:
    """Show a schedule: its rule, its next and its last occurrences."""
    status = session.run(session.app.schedules.get(name))
    coming = _coming(session, status)
    last = [row.occurrence for row in session.run(session.app.schedules.latest(name, _LAST))]
    if session.screen.structured:
        session.screen.document({**msgspec.to_builtins(status), "next": coming, "last": last})
    else:
        show_schedule(session.screen, status, coming, last, session.now)


def _coming(session: Session, status: ScheduleStatus) -> list[Previewed]:
    try:
        recurrence = session.run(session.app.schedules.compile_spec(status.readable))
        return previewed(recurrence, session.now, _NEXT)
    except (ConfigError, OverflowError):
        return []  # its problem is shown


@command(schedules_group, "pause")
def pause(
    session: Session,
    name: Name,
    until: Annotated[When | None, moment(f"Time of the automatic resume: {TIMES}")] = None,
    length: Annotated[float | None, duration("Duration of the pause: 2h.", "--for")] = None,
) -> None:
    """Pause a schedule: no occurrence fires. Running jobs continue."""
    if until is not None and length is not None:
        raise typer.BadParameter("give one of --until and --for", param_hint="--for")
    if length is not None:
        until = When(offset=timedelta(seconds=length))
    end = session.at(until)
    if end is not None and end <= session.now:
        raise typer.BadParameter(f"{end} has passed", param_hint="--until")
    session.run(session.app.schedules.pause(name, until=end))
    limit = f" until {end.isoformat(sep=' ', timespec='seconds')}" if end else ""
    session.screen.answer({"schedule": name, "paused": True, "until": end}, f"paused {name}{limit}")


@command(schedules_group, "resume")
def resume(session: Session, name: Name) -> None:
    """Resume a schedule. Its catch-up policy decides about occurrences during the pause."""
    session.run(session.app.schedules.resume(name))
    session.screen.answer({"schedule": name, "paused": False}, f"resumed {name}")


@command(schedules_group, "trigger")
def trigger(session: Session, name: Name) -> None:
    """Trigger a schedule: run it once now, and print the job's id."""
    job_id = session.run(session.app.schedules.trigger(name)).job_id
    session.screen.answer({"schedule": name, "job_id": job_id}, f"triggered {name}: {job_id}")


@command(schedules_group, "declare", database_only=True)
def declare(
    session: Session,
    reference: Annotated[str, argument("MODULE:APP", "App that declares the schedules.")],
) -> None:
    """Apply the schedules that an app's code declares, also after a rollback.

    Schedulers do this when they start, but don't restore a set that another release has superseded. This
    command does. Schedules that the app no longer declares are deleted.
    """
    app = session.load(reference)
    before = {status.name: status.version for status in session.run(app.schedules.list())}
    session.run(app.schedules.declare(force=True))
    after = {status.name: status.version for status in session.run(app.schedules.list())}
    changes = {
        "created": sorted(set(after) - set(before)),
        "updated": sorted(n for n in after if n in before and before[n] != after[n]),
        "deleted": sorted(set(before) - set(after)),
    }
    text = "; ".join(f"{what} {', '.join(names)}" for what, names in changes.items() if names)
    session.screen.answer(changes, text or "nothing to change")


@command(schedules_group, "delete")
def delete(session: Session, name: Name, yes: Yes = False) -> None:
    """Delete a schedule. Its ledger and its jobs stay until their retention is over."""
    if not yes:
        session.check_can_ask(yes)
        status = session.run(session.app.schedules.get(name))
        coming = relative(status.next_due, session.now)
        session.confirm(f"Delete {name} ({status.in_words}; next {coming})?", yes)
    session.run(session.app.schedules.delete(name))
    session.screen.answer({"schedule": name, "deleted": True}, f"deleted {name}")
