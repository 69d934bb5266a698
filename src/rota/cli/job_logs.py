"""`rota jobs logs`."""

from __future__ import annotations

from typing import Annotated

from rich.text import Text

from rota.cli.jobs import Id, jobs_group
from rota.cli.options import option
from rota.cli.output import Screen, plain
from rota.cli.session import Session, command
from rota.model import Failure, LogLine

_STYLES = {"stderr": "yellow", "warning": "yellow", "error": "red", "critical": "bold red",
           "debug": "dim", "mark": "dim italic"}  # fmt: skip


@command(jobs_group, "logs")
def logs(
    session: Session,
    job_id: Id,
    follow: Annotated[
        bool, option("Follow the output until the job has ended.", "--follow", "-f")
    ] = False,
    attempt: Annotated[int | None, option("Only show this attempt.", min=1)] = None,
) -> None:
    """Show what a job printed and logged, then the tracebacks of attempts that failed."""
    session.run(_show(session, job_id, attempt, follow))


async def _show(session: Session, job_id: Id, attempt: int | None, follow: bool) -> None:
    screen, shown = session.screen, 0
    async for line in session.app.jobs.logs(job_id, attempt=attempt, follow=follow):
        shown += 1
        if screen.structured:
            screen.line(line)
        else:
            _say(screen, line)
    shown += await _show_errors(session, job_id, attempt)
    if not shown:
        screen.note("The job printed and logged nothing.")


async def _show_errors(session: Session, job_id: Id, number: int | None) -> int:
    """Show how failed attempts ended: a line of JSON each, or the traceback."""
    job = await session.app.jobs.get(job_id)
    shown = 0
    for attempt in job.attempts:
        if attempt.error is None or number not in (None, attempt.number):
            continue
        shown += 1
        if session.screen.structured:
            line = {"attempt": attempt.number, "stream": "failure", "text": _failure(attempt.error)}
            session.screen.line(line | {"token": attempt.token, "at": attempt.ended_at})
        else:
            title = f"attempt {attempt.number} ended with {attempt.outcome}:"
            session.screen.say(Text(title, style="bold"))
            session.screen.say(Text(plain(_failure(attempt.error)), style="red"))
    return shown


def _failure(error: Failure) -> str:
    return error.traceback.rstrip() or f"{error.type}: {error.message}"


def _say(screen: Screen, line: LogLine) -> None:
    """Write a line with its time and attempt; in a pipe, as it was printed."""
    text = Text(plain(line.text), style=_STYLES.get(line.stream, ""))
    if screen.out.is_terminal:
        prefix = f"{line.at.astimezone():%H:%M:%S} #{line.attempt} {line.stream:<7} "
        text = Text.assemble((prefix, "dim"), text)
    screen.say(text)
