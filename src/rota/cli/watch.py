"""`rota jobs watch` and `rota runs watch`: progress until the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any
from uuid import UUID

import typer

from rota.cli.jobs import Ids, jobs_group
from rota.cli.runs import Id as RunId
from rota.cli.runs import group as runs_group
from rota.cli.session import Session, command
from rota.handle import JobFailed, JobHandle
from rota.lib.display import draw_bar, printable, terminal_bars
from rota.model import Job, Run
from rota.run_handle import RunFailed, RunHandle


@command(jobs_group, "watch")
def watch_jobs(session: Session, job_ids: Ids = None) -> None:
    """Show the progress of jobs until all of them have ended.

    In a terminal each job has a bar; elsewhere every change is a line, with --json a job in each. Exits
    with an error if one of them did not succeed.
    """
    if not job_ids:
        raise typer.BadParameter("name at least one job", param_hint="ID")
    operations: Any = session.app.jobs
    handles = [JobHandle[Any](operations, id) for id in dict.fromkeys(job_ids)]
    ended = session.run(_watch(session, {handle.id: handle.watch() for handle in handles}))
    for job in ended:
        if isinstance(job, Job) and job.state != "succeeded":
            raise JobFailed(job)


@command(runs_group, "watch")
def watch_run(session: Session, run: RunId) -> None:
    """Show the progress of a run until it has ended.

    In a terminal it has a bar; elsewhere every change is a line, with --json a run in each. Exits with
    an error if it did not succeed.
    """
    operations: Any = session.app.runs
    found = session.run(session.app.runs.get(run))
    [ended] = session.run(_watch(session, {found.id: RunHandle(operations, found.id).watch()}))
    if isinstance(ended, Run) and ended.state != "succeeded":
        raise RunFailed(ended)


async def _watch(session: Session, watched: Mapping[UUID, AsyncIterator[Any]]) -> list[Job | Run]:
    """Follow all of them at the same time, and return them as they have ended."""
    screen = session.screen
    visible = screen.out.is_terminal and not screen.structured

    async def follow(id: UUID, changes: AsyncIterator[Any], bars: Any) -> Job | Run:
        bar = bars.add_task(str(id), total=None)
        last: Any = None
        async with aclosing(changes) as each:  # type: ignore[type-var]
            async for last in each:
                draw_bar(bars, bar, last.bar())
                if screen.structured:
                    screen.line(last)
                elif not visible:
                    screen.say(printable(f"{id} {last.words()}"))
        _stop(bars, bar, last)
        found: Job | Run = last
        return found

    with terminal_bars(console=screen.out, disable=not visible) as bars:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(follow(id, changes, bars)) for id, changes in watched.items()
                ]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


def _stop(bars: Any, bar: Any, ended: Job | Run) -> None:
    """Leave the bar of what has ended at rest: full, if it succeeded."""
    total = ended.bar().total or 1
    done = total if ended.state == "succeeded" else ended.bar().done
    bars.update(bar, total=total, completed=done)
    bars.stop_task(bar)
