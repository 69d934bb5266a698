"""`rota jobs logs`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from rota.cli.jobs import Id
from rota.cli.output import Screen, plain
from rota.cli.session import Session, command
from rota.store.logs import LogLine

_STYLES = {"stderr": "yellow", "warning": "yellow", "error": "red", "critical": "bold red",
           "debug": "dim", "mark": "dim italic"}  # fmt: skip


def add_to(group: typer.Typer) -> None:
    command(group, "logs")(logs)


def logs(
    session: Session,
    job_id: Id,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")
    ] = False,
    attempt: Annotated[int | None, typer.Option(min=1, help="Only of this try.")] = None,
) -> None:
    """What a job printed and logged."""
    session.run(_show(session, job_id, attempt, follow))


async def _show(session: Session, job_id: Id, attempt: int | None, follow: bool) -> None:
    screen, shown = session.screen, 0
    async for line in session.app.jobs.logs(job_id, attempt=attempt, follow=follow):
        shown += 1
        if screen.as_json:
            screen.json_line(line)
        else:
            _say(screen, line)
    if not shown:
        screen.note("It has said nothing.")


def _say(screen: Screen, line: LogLine) -> None:
    """The moment and the attempt for people; alone in a pipe, as it was printed."""
    text = Text(plain(line.text), style=_STYLES.get(line.stream, ""))
    if screen.out.is_terminal:
        told = f"{line.at.astimezone():%H:%M:%S} #{line.attempt} {line.stream:<7} "
        text = Text.assemble((told, "dim"), text)
    screen.say(text)
