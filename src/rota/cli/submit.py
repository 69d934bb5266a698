"""`rota jobs submit`: submit a job, and wait for its end if wanted."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import msgspec
import typer
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
)

from rota.app import App
from rota.cli.output import Screen, plain, pretty
from rota.cli.session import Session, command
from rota.cli.times import parse_duration, parse_moment
from rota.handle import JobFailed, JobHandle
from rota.model import Job, State

_EXPLAIN_AFTER = 2.0  # seconds of not running, and again
# Reasons not to start that a person can do something about.
_BLOCKED = {"no_worker", "no_worker_for_lane", "task_unknown", "queue_paused", "no_scheduler"}


def add_to(group: typer.Typer) -> None:
    command(group, "submit")(submit)


def submit(
    session: Session,
    task: Annotated[str, typer.Argument(metavar="TASK", help="Name of the task.")],
    payload: Annotated[
        str,
        typer.Argument(
            metavar="PAYLOAD",
            help="Arguments as a JSON object; @FILE reads a file, - standard input.",
        ),
    ] = "{}",
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Due time: 2027-01-31T09:00:00+01:00.")
    ] = None,
    delay: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Due time as a delay from now: 90, 30s, 5m, 1h30m."),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(help="Idempotency key: a second submit with it returns the same job."),
    ] = None,
    priority: Annotated[
        int | None,
        typer.Option(help="Priority: higher goes first; a point is worth a minute of waiting."),
    ] = None,
    queue: Annotated[str | None, typer.Option(help="Queue of the job.")] = None,
    need: Annotated[
        list[str] | None, typer.Option(help="Capability that a worker must have. Repeatable.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Tag to find it by. Repeatable.")] = None,
    max_attempts: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of attempts.")
    ] = None,
    timeout: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Maximum duration of an attempt.")
    ] = None,
    heartbeat_timeout: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Maximum time of an attempt without a sign of life."),
    ] = None,
    app: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:APP", help="App whose task the arguments are checked against."
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the job to end, and show its result.")
    ] = False,
) -> None:
    """Submit a job."""
    given: dict[str, Any] = {
        "at": parse_moment(at) if at else None,
        "delay": parse_duration(delay) if delay else None,
        "key": key,
        "priority": priority,
        "queue": queue,
        "needs": need or None,
        "max_attempts": max_attempts,
        "timeout": parse_duration(timeout) if timeout else None,
        "heartbeat_timeout": parse_duration(heartbeat_timeout) if heartbeat_timeout else None,
        "tags": tag or (),
    }
    logging.getLogger("rota.submit").setLevel(logging.ERROR)  # its warnings are shown below
    arguments = read_payload(payload)
    rota = session.load(app) if app else session.app
    if app:
        rota.require_task(task)
    handle = session.run(rota.submit(task, arguments, **given))
    if wait:
        _follow(session, handle)
    elif session.screen.structured:
        session.screen.document(
            {"id": handle.id, "existed": handle.existed, "warnings": handle.warnings}
        )
    else:
        session.screen.say(f"{'already there:' if handle.existed else 'submitted'} {handle.id}")
        explanation = session.run(rota.jobs.explain(handle.id))
        for told in handle.warnings:
            session.screen.note(f"Warning: {told}")
        if explanation.code in _BLOCKED:
            session.screen.note(f"The job won't start yet. {explanation}")


def read_payload(text: str) -> dict[str, Any]:
    """Read a JSON object: the text itself, `-` for standard input, or `@file`."""
    if text == "-":
        text = sys.stdin.read()
    elif text.startswith("@"):
        try:
            text = Path(text[1:]).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise typer.BadParameter(
                f"{text[1:]} can't be read: {error}", param_hint="PAYLOAD"
            ) from None
    try:
        payload = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise typer.BadParameter(f"not valid JSON: {error}", param_hint="PAYLOAD") from None
    if not isinstance(payload, dict):
        raise typer.BadParameter(
            "it must be a JSON object of argument names and values, e.g. '{\"width\": 200}'",
            param_hint="PAYLOAD",
        )
    return payload


def _follow(session: Session, handle: JobHandle[Any]) -> None:
    screen = session.screen
    if not screen.structured:
        screen.note(f"submitted {handle.id}")
    for told in handle.warnings:
        screen.note(f"Warning: {told}")
    try:
        job = session.run(_wait(session.app, handle.id, screen))
    except KeyboardInterrupt:
        screen.note(f"The job continues. Look at it with: rota jobs show {handle.id}")
        raise
    if screen.structured:
        screen.document(job)
    if job.state != State.SUCCEEDED.label:
        raise JobFailed(job)
    if not screen.structured:
        screen.show(pretty(job.result))


async def _wait(app: App, job_id: UUID, screen: Screen) -> Job:
    """Wait until the job's end, with its progress on the terminal, if there is one."""
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(),
               TaskProgressColumn())  # fmt: skip
    visible = screen.err.is_terminal and not screen.structured
    loop = asyncio.get_running_loop()
    pause, explain_at, told = 0.02, loop.time() + _EXPLAIN_AFTER, ""
    with Progress(*columns, console=screen.err, transient=True, disable=not visible) as progress:
        bar = progress.add_task("submitted", total=None)
        while True:
            job = await app.jobs.find(job_id)
            if job is not None:
                if State.parse(job.state).is_final:
                    return job
                _draw(progress, bar, job)
                if visible and job.state != "running" and loop.time() >= explain_at:
                    why = await app.jobs.explain(job_id)
                    if why.code != told:
                        screen.note(why.sentence)
                    explain_at, told = loop.time() + _EXPLAIN_AFTER, why.code
            await asyncio.sleep(pause)
            pause = min(pause * 1.3, 0.5)


def _draw(progress: Progress, bar: TaskID, job: Job) -> None:
    told = job.progress if isinstance(job.progress, dict) else {}
    description = told.get("message") or job.state
    progress.update(
        bar, description=plain(f"{job.task}: {description}"), total=told.get("total"),
        completed=told.get("done") or 0,
    )  # fmt: skip
