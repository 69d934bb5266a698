"""`rota recover`: let nodes start on a database that was restored or copied."""

from __future__ import annotations

from typing import Annotated

from rota.cli.options import DryRun, Yes, option
from rota.cli.output import count
from rota.cli.session import Session
from rota.core.durations import format_duration
from rota.operations.recovery import Recovery

_SHOWN = 20


def recover(
    session: Session,
    dry_run: DryRun = False,
    no_pause: Annotated[
        bool, option("Don't pause the queues of jobs that may have run.", "--no-pause")
    ] = False,
    yes: Yes = False,
) -> None:
    """Resume on a restored or copied database: show what may have run, ask, and let nodes start.

    Nodes refuse such a database until then. Stop them all first. Jobs that may run once at most, and may
    have run after the backup was made, are listed, and their queues are paused.
    """
    session.check_can_ask(yes or dry_run)
    connector = session.app.connector
    found = session.run(connector.recover(dry_run=True))
    if not session.screen.structured:
        _show(session, found)
    if not dry_run:
        session.confirm("Let nodes run its jobs here?", yes)
        found = session.run(connector.recover(pause=not no_pause))
    if session.screen.structured:
        session.screen.document(found)
    elif not dry_run:
        for queue in found.paused:
            session.screen.say(f"paused queue {queue}")
        session.screen.say("recovered: nodes can start here")
        session.screen.note(
            "Look at the paused queues: `rota jobs cancel` what has run, then `rota queues resume`."
        )


def _show(session: Session, found: Recovery) -> None:
    screen = session.screen
    what = [
        word for word, is_so in (("copied", found.copied), ("restored", found.restored)) if is_so
    ]
    screen.say(
        f"this database was {' and '.join(what)}"
        if what
        else "this database was neither copied nor restored"
    )
    if found.last_seen is not None:
        gap = format_duration(max((found.now - found.last_seen).total_seconds(), 0))
        screen.say(f"a node was seen last {gap} ago: what happened since is not in it")
    screen.say(f"may have run, at most once: {count(found.may_have_run_count, 'job')}")
    for job in found.may_have_run[:_SHOWN]:
        screen.say(f"  {job.id} {job.state} {job.namespace}/{job.queue} {job.task}")
    for each in found.uncertain:
        screen.say(f"held back: {count(each.jobs, 'job')} of {each.namespace}/{each.queue}")
    for each in found.will_run:
        screen.say(f"run, or run again: {count(each.jobs, 'job')} of {each.namespace}/{each.queue}")
    for schedule in found.schedules:
        screen.say(
            f"schedule {schedule.namespace}/{schedule.name} is decided until "
            f"{schedule.decided_until:%Y-%m-%d %H:%M:%S}; it catches up: {schedule.catch_up}"
        )
