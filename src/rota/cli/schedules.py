"""`rota schedules`: list, show, pause, resume, trigger, declare and delete schedules."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
import typer

from rota.cli.jumps import Previewed, previewed
from rota.cli.moments import When, database_time, parse_when
from rota.cli.options import Yes
from rota.cli.schedule_views import LedgerRow, ledger_rows, show_schedule, show_schedules
from rota.cli.session import Session, callback, command
from rota.cli.times import parse_duration, relative
from rota.errors import ConfigError
from rota.operations.ledger import ScheduleStatus
from rota.store.schedules import ScheduleStore

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the schedule.")]

_NEXT = 5
_LAST = 10

schedules_app = typer.Typer(help="Create, inspect and control schedules.")


@callback(schedules_app)
def root(session: Session) -> None:
    """Create, inspect and control schedules. Without a command, list them."""
    list_schedules(session)


@command(schedules_app, "list")
def list_schedules(
    session: Session,
    task: Annotated[str | None, typer.Option("--task", help="Only show this task.")] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Only show this tag.")] = None,
) -> None:
    """List schedules: their rules, next occurrences and last outcomes."""
    found = [
        status
        for status in session.run(session.app.schedules.list())
        if task in (None, status.task)
        and (tag is None or (status.spec and tag in status.spec.tags))
    ]
    last = {row.schedule: row for row in session.run(latest(session))}
    if session.screen.structured:
        session.screen.document(
            [{**msgspec.to_builtins(one), "last": last.get(one.name)} for one in found]
        )
    else:
        show_schedules(session.screen, found, last, database_time(session))


async def latest(session: Session, name: str | None = None, limit: int = 1) -> list[LedgerRow]:
    """Return the newest recorded occurrences, of one schedule or of each."""
    store = ScheduleStore((await session.app.store()).database)
    return ledger_rows(await store.latest_occurrences(session.app.settings.namespace, name, limit))


@command(schedules_app, "show")
def show(session: Session, name: Name) -> None:
    """Show a schedule: its rule, its next and its last occurrences."""
    status = session.run(session.app.schedules.get(name))
    now = database_time(session)
    coming = _coming(session, status, now)
    last = session.run(latest(session, name, _LAST))
    if session.screen.structured:
        session.screen.document({**msgspec.to_builtins(status), "next": coming, "last": last})
    else:
        show_schedule(session.screen, status, coming, last, now)


def _coming(session: Session, status: ScheduleStatus, now: datetime) -> list[Previewed]:
    try:
        return previewed(
            session.run(session.app.schedules.compile_spec(status.readable)), now, _NEXT
        )
    except (ConfigError, OverflowError):
        return []  # its problem is shown


@command(schedules_app, "pause")
def pause(
    session: Session,
    name: Name,
    until: Annotated[
        When | None,
        typer.Option(
            "--until", metavar="TIME", parser=parse_when,
            help="Time of the automatic resume: 2027-01-31T09:00+01:00, 2027-01-31 (UTC) or +3h.",
        ),
    ] = None,
    length: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="Duration of the pause: 2h.")
    ] = None,
) -> None:  # fmt: skip
    """Pause a schedule: no occurrence fires. Running jobs continue."""
    if until is not None and length is not None:
        raise typer.BadParameter("give one of --until and --for", param_hint="--for")
    if length is not None:
        until = When(offset=timedelta(seconds=parse_duration(length)))
    moment = None
    if until is not None:
        now = database_time(session)
        moment = until.at(now)
        if moment <= now:
            raise typer.BadParameter(f"{moment} has passed", param_hint="--until")
    session.run(session.app.schedules.pause(name, until=moment))
    told = f" until {moment.isoformat(sep=' ', timespec='seconds')}" if moment else ""
    _tell(session, f"paused {name}{told}", {"schedule": name, "paused": True, "until": moment})


@command(schedules_app, "resume")
def resume(session: Session, name: Name) -> None:
    """Resume a schedule. Its catch-up policy decides about occurrences during the pause."""
    session.run(session.app.schedules.resume(name))
    _tell(session, f"resumed {name}", {"schedule": name, "paused": False})


@command(schedules_app, "trigger")
def trigger(session: Session, name: Name) -> None:
    """Trigger a schedule: run it once now, and print the job's id."""
    job_id = session.run(session.app.schedules.trigger(name)).job_id
    _tell(session, f"triggered {name}: {job_id}", {"schedule": name, "job_id": job_id})


@command(schedules_app, "declare")
def declare(
    session: Session,
    reference: Annotated[
        str, typer.Argument(metavar="MODULE:APP", help="App that declares the schedules.")
    ],
) -> None:
    """Declare the schedules of an app's code, also after a rollback.

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
    told = "; ".join(f"{what} {', '.join(names)}" for what, names in changes.items() if names)
    _tell(session, told or "nothing to change", changes)


@command(schedules_app, "delete")
def delete(session: Session, name: Name, yes: Yes = False) -> None:
    """Delete a schedule. Its ledger and its jobs stay until their retention is over."""
    session.check_can_ask(yes)
    if not yes:
        status = session.run(session.app.schedules.get(name))
        coming = relative(status.next_due, database_time(session))
        question = f"Delete {name} ({status.in_words}; next {coming})?"
        session.confirm(question, yes)
    session.run(session.app.schedules.delete(name))
    _tell(session, f"deleted {name}", {"schedule": name, "deleted": True})


def _tell(session: Session, text: str, document: dict[str, Any]) -> None:
    session.screen.answer(document, text)
