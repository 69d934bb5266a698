"""`rota jobs submit`: submit a job, and wait for its end on request."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import msgspec
import typer

from rota.app import App
from rota.cli import options
from rota.cli.jobs import jobs_group
from rota.cli.options import argument, duration, moment, option
from rota.cli.output import Screen, pretty
from rota.cli.session import Session, command
from rota.cli.times import When
from rota.core.resources import parse_pairs
from rota.handle import JobFailed, JobHandle
from rota.lib.display import draw_bar, terminal_bars
from rota.model import Job, State

_EXPLAIN_AFTER = 2.0  # seconds before each explanation of why it doesn't run
# Reasons not to start that a person can remove.
_BLOCKED = {"no_worker", "no_worker_for_lane", "task_unknown", "queue_paused", "no_scheduler"}


@command(jobs_group, "submit")
def submit(
    session: Session,
    task: Annotated[str, argument("TASK", "Name of the task.")],
    payload: Annotated[str, argument("PAYLOAD", options.PAYLOAD)] = "{}",
    at: Annotated[When | None, moment(f"Due time: {options.TIMES}")] = None,
    delay: Annotated[
        float | None, duration("Due time as a delay from now: 90, 30s, 5m, 1h30m.")
    ] = None,
    key: Annotated[
        str | None, option("Idempotency key: a second submit with it returns the same job.")
    ] = None,
    priority: options.Priority = None,
    queue: Annotated[str | None, option("Queue of the job.")] = None,
    need: options.Need = None,
    resource: options.ResourceOption = None,
    near: Annotated[str | None, option("Label of the nodes that claim it at once.")] = None,
    near_patience: Annotated[
        float | None, duration("Time after which other nodes may claim it, too: 5s, 1m.")
    ] = None,
    tag: options.Tags = None,
    max_attempts: options.MaxAttempts = None,
    timeout: options.Timeout = None,
    heartbeat_timeout: options.HeartbeatTimeout = None,
    unique: options.UniqueOption = None,
    unique_key: options.UniqueKey = None,
    unique_conflict: options.UniqueConflictOption = None,
    debounce: options.Debounce = None,
    debounce_max: options.DebounceMax = None,
    throttle: options.Throttle = None,
    throttle_keep: options.ThrottleKeepOption = None,
    block: Annotated[bool, option("Wait for room while the queue is full.")] = False,
    block_timeout: Annotated[
        float | None, duration("How long to wait for room, with --block: 30s, 5m.")
    ] = None,
    app: options.AppOption = None,
    wait: Annotated[bool, option("Wait for the job to end, and show its result.")] = False,
) -> None:
    """Submit a job."""
    logging.getLogger("rota.submit").setLevel(logging.ERROR)  # its warnings are shown below
    arguments = read_payload(payload)
    rota = session.app_with(task, app)
    handle = session.run(
        rota.submit(
            task, arguments, at=session.at(at), delay=delay, key=key, priority=priority, queue=queue,
            needs=need or None, max_attempts=max_attempts, timeout=timeout,
            heartbeat_timeout=heartbeat_timeout, tags=tag or (),
            unique=options.parse_unique(unique),
            unique_key=unique_key, unique_conflict=unique_conflict, debounce=debounce,
            debounce_max=debounce_max, throttle=throttle, throttle_keep=throttle_keep,
            block=block, block_timeout=block_timeout,
            resources=parse_pairs(resource) if resource else None, near=near,
            near_patience=near_patience,
        )
    )  # fmt: skip
    if wait:
        _follow(session, handle)
    elif session.screen.structured:
        session.screen.document(
            {"id": handle.id, "existed": handle.existed, "warnings": handle.warnings}
        )
    else:
        session.screen.say(f"{'already there:' if handle.existed else 'submitted'} {handle.id}")
        explanation = session.run(rota.jobs.explain(handle.id))
        for warning in handle.warnings:
            session.screen.note(f"Warning: {warning}")
        if explanation.code in _BLOCKED:
            session.screen.note(f"The job won't start yet. {explanation}")


def read_payload(text: str, hint: str = "PAYLOAD") -> dict[str, Any]:
    """Read a JSON object: the text itself, `-` for standard input, or `@file`."""
    payload = read_json(text, hint)
    if not isinstance(payload, dict):
        raise typer.BadParameter(
            "must be a JSON object of names and values, such as '{\"width\": 200}'", param_hint=hint
        )
    return payload


def read_json(text: str, hint: str) -> Any:
    if text == "-":
        text = sys.stdin.read()
    elif text.startswith("@"):
        try:
            text = Path(text[1:]).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise typer.BadParameter(
                f"{text[1:]} can't be read: {error}", param_hint=hint
            ) from None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise typer.BadParameter(f"not valid JSON: {error}", param_hint=hint) from None


def _follow(session: Session, handle: JobHandle[Any]) -> None:
    screen = session.screen
    if not screen.structured:
        screen.note(f"submitted {handle.id}")
    for warning in handle.warnings:
        screen.note(f"Warning: {warning}")
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
    visible = screen.err.is_terminal and not screen.structured
    loop = asyncio.get_running_loop()
    pause, explain_at, explained = 0.02, loop.time() + _EXPLAIN_AFTER, ""
    with terminal_bars(console=screen.err, transient=True, disable=not visible) as bars:
        bar = bars.add_task("submitted", total=None)
        while True:
            job = await app.jobs.find(job_id)
            if job is not None:
                if State.parse(job.state).is_final:
                    return job
                draw_bar(bars, bar, job.bar())
                if visible and job.state != "running" and loop.time() >= explain_at:
                    why = await app.jobs.explain(job_id)
                    if why.code != explained:
                        screen.note(why.sentence)
                    explain_at, explained = loop.time() + _EXPLAIN_AFTER, why.code
            await asyncio.sleep(pause)
            pause = min(pause * 1.3, 0.5)
