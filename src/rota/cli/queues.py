"""`rota queues`: what waits where; pause and resume."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.output import plain, state, table
from rota.cli.session import Session, callback, command
from rota.cli.times import parse_duration
from rota.core.durations import format_duration

Name = Annotated[str, typer.Argument(metavar="NAME")]

group = typer.Typer(help="The queues: how full they are, and whether they are paused.")


@callback(group)
def list_queues(session: Session) -> None:
    """The queues: how full they are, and whether they are paused."""
    screen = session.screen
    queues = session.run(session.app.queues.list())
    if screen.as_json:
        screen.json(queues)
        return
    if not queues:
        screen.note("No queues yet: the first submit to one makes it.")
        return
    rows = table("queue", "ready", "running", "scheduled", "lag", "max run time", "paused",
                 right=["ready", "running", "scheduled", "lag", "max run time"])  # fmt: skip
    for queue in queues:
        counts = (f"{number:,}" for number in (queue.ready, queue.running, queue.scheduled))
        lag = "-" if queue.lag is None else format_duration(queue.lag)
        paused = state("paused") if queue.paused_at else ""
        most = "-" if queue.max_run_time is None else format_duration(queue.max_run_time)
        rows.add_row(plain(queue.name), *counts, lag, most, paused)
    screen.show(rows)


@command(group, "pause")
def pause(
    session: Session,
    name: Name,
    new: Annotated[
        bool, typer.Option("--new", help="Also a queue that no job and no task has named yet.")
    ] = False,
) -> None:
    """Start no more jobs of a queue. What runs goes on."""
    session.run(session.app.queues.pause(name, must_exist=not new))
    _tell(session, name, paused=True)


@command(group, "resume")
def resume(session: Session, name: Name) -> None:
    """Go on with a paused queue."""
    session.run(session.app.queues.resume(name))
    _tell(session, name, paused=False)


@command(group, "set")
def set_queue(
    session: Session,
    name: Name,
    max_run_time: Annotated[
        str,
        typer.Option(metavar="DURATION", help="30m, 2h; none: the installation's maximum counts."),
    ],
) -> None:
    """Set how long jobs of a queue may run when they have no timeout of their own."""
    seconds = None if max_run_time == "none" else parse_duration(max_run_time)
    session.run(session.app.queues.set_max_run_time(name, seconds))
    if session.screen.as_json:
        session.screen.json({"queue": name, "max_run_time": seconds})
    else:
        session.screen.say(f"{name}: maximum run time {_maximum(seconds)}")


def _maximum(seconds: float | None) -> str:
    return "of the installation" if seconds is None else format_duration(seconds)


def _tell(session: Session, name: str, *, paused: bool) -> None:
    if session.screen.as_json:
        session.screen.json({"queue": name, "paused": paused})
    else:
        session.screen.say(f"{'paused' if paused else 'resumed'} {name}")
