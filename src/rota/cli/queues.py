"""`rota queues`: list, pause, resume and configure queues."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.output import plain, state, table
from rota.cli.session import Session, callback, command
from rota.cli.times import parse_duration
from rota.core.durations import format_duration

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the queue.")]

group = typer.Typer(help="List, pause, resume and configure queues.")


@callback(group)
@command(group, "list")
def list_queues(session: Session) -> None:
    """List queues: how full they are, and whether they are paused."""
    screen = session.screen
    queues = session.run(session.app.queues.list())
    if not screen.listing(queues, "No queues. The first submit to a queue creates it."):
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
        bool, typer.Option("--new", help="Allow a queue that no job and no task has used yet.")
    ] = False,
) -> None:
    """Pause a queue: none of its jobs start. Running jobs continue."""
    session.run(session.app.queues.pause(name, must_exist=not new))
    _tell(session, name, paused=True)


@command(group, "resume")
def resume(session: Session, name: Name) -> None:
    """Resume a paused queue."""
    session.run(session.app.queues.resume(name))
    _tell(session, name, paused=False)


@command(group, "set")
def set_queue(
    session: Session,
    name: Name,
    max_run_time: Annotated[
        str,
        typer.Option(
            metavar="DURATION", help="Maximum run time: 30m, 2h; none for the installation's."
        ),
    ],
) -> None:
    """Set the maximum run time of a queue's jobs that have no timeout."""
    seconds = None if max_run_time == "none" else parse_duration(max_run_time)
    session.run(session.app.queues.set_max_run_time(name, seconds))
    session.screen.answer(
        {"queue": name, "max_run_time": seconds}, f"{name}: maximum run time {_maximum(seconds)}"
    )


def _maximum(seconds: float | None) -> str:
    return "of the installation" if seconds is None else format_duration(seconds)


def _tell(session: Session, name: str, *, paused: bool) -> None:
    session.screen.answer(
        {"queue": name, "paused": paused}, f"{'paused' if paused else 'resumed'} {name}"
    )
