"""Jobs that were stored before their tasks were registered run as the tasks promise."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from rota import Context
from rota.core.time.schedule import make_spec
from rota.core.workflow.graph import Graph
from rota.core.workflow.model import Definition, StepDefinition
from rota.model import Retry
from rota.testing import Sandbox


async def submit(sandbox: Sandbox, task: str) -> UUID:
    """Submit a job as plain SQL does, which knows of a task what nodes have registered."""
    connection = await asyncpg.connect(await sandbox.app.database_url())
    try:
        job: UUID = await connection.fetchval(
            f"select {sandbox.app.settings.schema}.submit($1)", task
        )
    finally:
        await connection.close()
    return job


async def test_an_at_most_once_task_that_was_not_known_yet_is_not_repeated(
    sandbox: Sandbox,
) -> None:
    app = sandbox.app
    id = await submit(sandbox, "charge")
    ran: list[str] = []
    seen: list[Any] = []

    @app.task(guarantee="at_most_once")
    async def charge(ctx: Context) -> None:
        ran.append("charge")
        connection = await asyncpg.connect(await app.database_url())
        row = "select guarantee, started_at is not null from {}.present where id = $1"
        seen.append(tuple(await connection.fetchrow(row.format(app.settings.schema), ctx.job.id)))
        await connection.close()
        raise ValueError("the bank did not answer")

    await sandbox.run_due()
    await sandbox.run_for(timedelta(days=1))
    job = await app.jobs.get(id)
    assert (job.state, job.guarantee, ran) == ("failed", "at_most_once", ["charge"])
    # What a reaper would find, had its node died meanwhile: it has begun, and is not run again.
    assert seen == [(2, True)]


async def test_an_exactly_once_task_that_was_not_known_yet_has_its_transaction(
    sandbox: Sandbox,
) -> None:
    id = await submit(sandbox, "book")

    @sandbox.app.task(guarantee="exactly_once")
    async def book(ctx: Context) -> None:
        await ctx.connection.execute("select 1")

    await sandbox.run_due()
    job = await sandbox.app.jobs.get(id)
    assert (job.state, job.guarantee) == ("succeeded", "exactly_once")


def stored(**options: Any) -> Graph:
    """A workflow as a file has it: it names a task that nobody has registered."""
    return Graph(
        Definition(name="orders", steps=(StepDefinition(name="charge", task="charge", **options),))
    )


@pytest.mark.parametrize(("given", "attempts"), [({}, 2), ({"max_attempts": 3}, 3)])
async def test_a_stored_step_is_retried_as_its_task_says(
    sandbox: Sandbox, given: dict[str, Any], attempts: int
) -> None:
    app = sandbox.app
    await app.workflows.put(stored(**given))
    run = await app.runs.start("orders")
    ran: list[str] = []

    @app.task(retry=Retry(max_attempts=2), timeout=30)
    async def charge() -> None:
        ran.append("charge")
        raise ValueError("the bank did not answer")

    await sandbox.run_due()
    await sandbox.run_for(timedelta(days=1))
    assert (await run.status()).state == "failed"
    job = (await run.steps())[0].job_id
    assert job is not None
    assert len(ran) == attempts
    assert (await app.jobs.get(job)).timeout == 30


async def test_a_stored_step_of_an_at_most_once_task_is_not_repeated(sandbox: Sandbox) -> None:
    app = sandbox.app
    await app.workflows.put(stored())
    run = await app.runs.start("orders")
    ran: list[str] = []

    @app.task(guarantee="at_most_once")
    async def charge() -> None:
        ran.append("charge")
        raise ValueError("the bank did not answer")

    await sandbox.run_due()
    await sandbox.run_for(timedelta(days=1))
    assert ((await run.status()).state, ran) == ("failed", ["charge"])


async def test_a_schedule_of_an_at_most_once_task_that_was_not_known_yet(sandbox: Sandbox) -> None:
    app = sandbox.app
    await app.schedules.put(make_spec("nightly", "charge", every="1h"))
    ran: list[str] = []

    @app.task(guarantee="at_most_once")
    async def charge() -> None:
        ran.append("charge")
        raise ValueError("the bank did not answer")

    await sandbox.run_for(timedelta(minutes=61))
    assert ran == ["charge"]
    [job] = await app.jobs.list(task="charge")
    assert (job.state, job.guarantee) == ("failed", "at_most_once")
