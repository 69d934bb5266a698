"""`rota queues`: what waits where; pause and resume."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.output import plain, state, table
from rota.cli.session import Session, callback, command
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
    rows = table("queue", "ready", "running", "scheduled", "lag", "paused",
                 right=["ready", "running", "scheduled", "lag"])  # fmt: skip
    for queue in queues:
        counts = (f"{number:,}" for number in (queue.ready, queue.running, queue.scheduled))
        lag = "-" if queue.lag is None else format_duration(queue.lag)
        paused = state("paused") if queue.paused_at else ""
        rows.add_row(plain(queue.name), *counts, lag, paused)
    screen.show(rows)


@command(group, "pause")
def pause(session: Session, name: Name) -> None:
    """Start no more jobs of a queue. What runs goes on."""
    session.run(session.app.queues.pause(name))
    _tell(session, name, paused=True)


@command(group, "resume")
def resume(session: Session, name: Name) -> None:
    """Go on with a paused queue."""
    session.run(session.app.queues.resume(name))
    _tell(session, name, paused=False)


def _tell(session: Session, name: str, *, paused: bool) -> None:
    if session.screen.as_json:
        session.screen.json({"queue": name, "paused": paused})
    else:
        session.screen.say(f"{'paused' if paused else 'resumed'} {name}")
