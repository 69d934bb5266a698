"""`rota queues`: list, pause, resume and configure queues."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.options import argument, option
from rota.cli.output import state
from rota.cli.session import Session, callback, command
from rota.cli.times import parse_duration
from rota.core.durations import format_duration

Name = Annotated[str, argument("NAME", "Name of the queue.")]

group = typer.Typer(help="List, pause, resume and configure queues.")


@callback(group)
@command(group, "list")
def list_queues(session: Session) -> None:
    """List queues: how full they are, and whether they are paused."""
    queues = session.run(session.app.queues.list())
    numbers = ("ready", "running", "scheduled", "lag", "max run time")
    session.screen.listing(
        queues, "No queues. The first submit to a queue creates it.", ("queue", *numbers, "paused"),
        (
            (
                queue.name, f"{queue.ready:,}", f"{queue.running:,}", f"{queue.scheduled:,}",
                "-" if queue.lag is None else format_duration(queue.lag),
                "-" if queue.max_run_time is None else format_duration(queue.max_run_time),
                state("paused") if queue.paused_at else "",
            )
            for queue in queues
        ),
        right=numbers,
    )  # fmt: skip


@command(group, "pause")
def pause(
    session: Session,
    name: Name,
    new: Annotated[bool, option("Allow a queue that no job and no task has used yet.")] = False,
) -> None:
    """Pause a queue: none of its jobs start. Running jobs continue."""
    session.run(session.app.queues.pause(name, must_exist=not new))
    session.screen.answer({"queue": name, "paused": True}, f"paused {name}")


@command(group, "resume")
def resume(session: Session, name: Name) -> None:
    """Resume a paused queue."""
    session.run(session.app.queues.resume(name))
    session.screen.answer({"queue": name, "paused": False}, f"resumed {name}")


@command(group, "set")
def set_queue(
    session: Session,
    name: Name,
    max_run_time: Annotated[
        str, option("Maximum run time: 30m, 2h; none for the installation's.", metavar="DURATION")
    ],
) -> None:
    """Set the maximum run time of a queue's jobs that have no timeout."""
    seconds = None if max_run_time == "none" else parse_duration(max_run_time)
    session.run(session.app.queues.set_max_run_time(name, seconds))
    shown = "of the installation" if seconds is None else format_duration(seconds)
    session.screen.answer(
        {"queue": name, "max_run_time": seconds}, f"{name}: maximum run time {shown}"
    )
