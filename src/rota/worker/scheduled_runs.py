"""Starts the runs of schedules that name a workflow: the jobs of the built-in task `rota.start`.

Protocol. An occurrence of such a schedule is a job like any other: in the ledger, gated by the overlap
policy, tried again and dead-lettered. Its one effect is to start a run under its own id, in the
transaction that finishes it (`exactly_once`). So there is a moment before which the job holds its place
in the schedule's gate, and after which the run does (`rota.left_places`); no crash comes between them. A
job that runs again, such as one that was retried from the dead letters, finds a run of its id, and
starts nothing.

The transaction locks the job first. A stop that came before leaves it without a lock, and nothing is
started; one that comes later waits for the commit, and stops the run.
"""

from __future__ import annotations

from typing import Any

import msgspec

from rota.app import App
from rota.config import START_TASK
from rota.context import Context
from rota.core.workflow.graph import Graph
from rota.core.workflow.model import Definition
from rota.errors import ConfigError, Fatal, InvalidArguments, JobError
from rota.model import Retry
from rota.operations.runs import check_input
from rota.store.rows import NewRun

_RETRY = Retry(max_attempts=8, base=2.0, factor=3.0, cap=600.0)


class RunNotStarted(JobError):
    """A scheduled run could not be started."""


class _Start(msgspec.Struct, frozen=True):
    """The entry that a schedule writes into the headers of its jobs."""

    workflow: str
    priority: int | None = None


def enable_scheduled_runs(app: App) -> None:
    """Let this app's workers start runs of schedules. Nodes do it by themselves."""
    if START_TASK in app.tasks:
        return

    async def start(ctx: Context, **given: Any) -> dict[str, str]:
        asked = msgspec.convert(ctx.job.headers["start"], _Start)
        version = await _check(app, asked.workflow, given)
        database = (await app.store()).database
        row = await ctx.connection.fetchrow(
            database.queries["lock_starter"], ctx.job.id, ctx.token,
            None if ctx.occurrence is None else ctx.occurrence.due_at,
        )  # fmt: skip
        if row is None:
            raise RunNotStarted("it was asked to stop before its run was started")
        headers = {name: value for name, value in ctx.job.headers.items() if name != "start"}
        run = NewRun(
            id=ctx.job.id, namespace=app.settings.namespace, workflow=asked.workflow,
            input=msgspec.Raw(msgspec.json.encode(given)), version=version,
            priority=asked.priority, headers=msgspec.Raw(msgspec.json.encode(headers)),
            schedule=row["schedule_id"],
        )  # fmt: skip
        (await database.known_encryption()).encrypt_run(run)
        await ctx.connection.fetch(database.queries["start_run"], msgspec.json.encode(run).decode())
        return {"run": str(ctx.job.id)}

    app.task(name=START_TASK, guarantee="exactly_once", retry=_RETRY, timeout=60, runner="loop")(
        start
    )


async def _check(app: App, workflow: str, given: dict[str, Any]) -> int:
    """Return the version to start. Raises `Fatal` where another attempt would find the same."""
    info = await app.workflows.find(workflow)
    if info is None:
        raise RunNotStarted(
            f"no workflow is named {workflow!r}: a node of its application declares it at its start"
        )
    if info.retired_at is not None:
        raise Fatal(
            f"workflow {workflow!r} is retired: `rota workflows retire {workflow} --undo` lets its runs "
            "start again; or pause or delete the schedule"
        )
    try:
        check_input(Graph(msgspec.convert(info.definition, Definition)), given)
    except (InvalidArguments, ConfigError) as error:
        raise Fatal(f"{error}; change the schedule's payload") from None
    return info.version
