"""Two at work on the same run: what one has locked, the other waits for, and then looks again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import asyncpg
import pytest

from proof.waiting import eventually
from rota.core.workflow.graph import Graph
from rota.core.workflow.model import Definition, StepDefinition
from rota.errors import Conflict
from rota.run_handle import RunHandle
from rota.testing import Sandbox
from tests.support.shop import Shop, ended, states


class Finisher:
    """A worker that has finished a step and has not committed yet."""

    def __init__(self, connection: asyncpg.Connection[Any], sandbox: Sandbox) -> None:
        self.connection = connection
        self._schema = sandbox.app.settings.schema
        self._app = sandbox.app

    async def finish(self, run: RunHandle, *names: str) -> None:
        steps = [await self._app.runs.step(run.id, name) for name in names]
        await self.connection.execute(
            f"select {self._schema}.end_steps(array_fill($1::uuid, array[$4::int]), $2, $3, "
            "array_fill(5::smallint, array[$4]), array_fill('1'::json, array[$4]), "
            "array_fill(null::json, array[$4]))",
            run.id, [step.number for step in steps], [step.job_id for step in steps], len(steps),
        )  # fmt: skip

    async def commits_once_waited_for(self, act: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Let somebody wait for this transaction, and commit it then."""
        task = asyncio.create_task(act)

        async def waits() -> bool:
            asked = (
                "select exists (select from pg_stat_activity where $1 = any(pg_blocking_pids(pid)))"
            )
            return bool(await self.connection.fetchval(asked, self.connection.get_server_pid()))

        await eventually(waits)
        await self.connection.execute("commit")
        await asyncio.wait([task])
        return task


@pytest.fixture
async def finisher(sandbox: Sandbox) -> AsyncIterator[Finisher]:
    connection = await asyncpg.connect(await sandbox.app.database_url())
    await connection.execute("begin")
    yield Finisher(connection, sandbox)
    await connection.close()


@pytest.mark.parametrize("act", ["retry", "skip"])
async def test_a_step_that_starts_at_this_moment_is_not_repeated(
    sandbox: Sandbox, shop: Shop, finisher: Finisher, act: str
) -> None:
    """`c` starts by the end of `x`, while somebody wants to repeat `b`, and `c` with it."""
    flow = sandbox.app.workflow("race")
    b = shop.add(flow, "b")
    shop.add(flow, "c", after=[b, shop.add(flow, "x")], rule="one_succeeded")
    shop.broken = {"b"}
    await sandbox.app.queues.pause("default")
    run = await flow.start()
    job = (await sandbox.app.runs.step(run.id, "b")).job_id
    assert job is not None
    await sandbox.app.jobs.cancel(job)
    await finisher.finish(run, "x")
    task = await finisher.commits_once_waited_for(getattr(run, act)("b"))
    assert isinstance(task.exception(), Conflict)
    assert len([job for job in await sandbox.app.jobs.list() if job.step == 2]) == 1


async def test_a_cancel_closes_what_a_finish_is_about_to_start(
    sandbox: Sandbox, shop: Shop, finisher: Finisher
) -> None:
    flow = sandbox.app.workflow("race")
    a = shop.add(flow, "a")
    shop.add(flow, "b", after=a)
    shop.add(flow, "cleanup", after="b", rule="always")
    await sandbox.app.queues.pause("default")
    run = await flow.start()
    await finisher.finish(run, "a")
    await finisher.commits_once_waited_for(run.cancel())
    await sandbox.app.queues.resume("default")
    assert (await ended(sandbox, run)).state == "cancelled"
    assert (await states(run))["b"] == "cancelled"
    assert "b" not in shop.ran
    assert shop.ran.count("cleanup") == 1


async def test_a_resume_after_a_pause_sees_a_finish_that_did_not(
    sandbox: Sandbox, shop: Shop, finisher: Finisher
) -> None:
    flow = sandbox.app.workflow("race")
    shop.add(flow, "b", after=shop.add(flow, "a"))
    await sandbox.app.queues.pause("default")
    run = await flow.start()
    await run.pause()
    await finisher.finish(run, "a")
    await finisher.commits_once_waited_for(run.resume())
    await sandbox.app.queues.resume("default")
    assert (await ended(sandbox, run)).state == "succeeded"
    assert shop.ran.count("b") == 1


async def test_two_resumes_at_once_are_one(sandbox: Sandbox, shop: Shop) -> None:
    flow = sandbox.app.workflow("twice")
    shop.add(flow, "a")
    shop.broken = {"a"}
    run = await flow.start()
    await sandbox.run_due()
    shop.broken = set()
    answers = await asyncio.gather(*(run.resume() for _ in range(4)), return_exceptions=True)
    assert sum(isinstance(answer, Conflict) for answer in answers) == 3
    assert (await ended(sandbox, run)).state == "succeeded"
    assert shop.ran == ["a", "a"]


async def test_a_child_that_is_resumed_by_two_at_once_runs_once(
    sandbox: Sandbox, shop: Shop
) -> None:
    """By an operator, and by the outer run, which waits for the operator's transaction."""
    app = sandbox.app
    inner = app.workflow("inner")
    shop.add(inner, "x")
    outer = app.workflow("outer")
    outer.step(inner)
    shop.broken = {"x"}
    run = await outer.start()
    await sandbox.run_due()
    [child] = await app.runs.list(workflow="inner")
    shop.broken, shop.ran = set(), []
    await run.resume()
    schema = app.settings.schema
    connection = await asyncpg.connect(await app.database_url())
    try:
        await connection.execute("begin")
        await connection.execute(f"select from {schema}.run where id = $1 for update", child.id)
        await connection.execute(
            f"select {schema}.resume_run($1, {schema}.steps_to_resume($1))", child.id
        )
        operator = Finisher(connection, sandbox)
        await operator.commits_once_waited_for(sandbox.run_due())
    finally:
        await connection.close()
    assert (await ended(sandbox, run)).state == "succeeded"
    assert shop.ran == ["x"]
    assert len(await app.jobs.list()) == 2


async def test_ends_and_a_cancel_across_each_other_lock_in_one_order(
    sandbox: Sandbox, finisher: Finisher
) -> None:
    """Jobs that are cancelled lock the steps after them in the order of the jobs: not that of steps."""
    app, dice = sandbox.app, random.Random(1)

    @app.task
    async def act() -> None: ...

    first = [f"a{number}" for number in range(20)]
    steps = [StepDefinition(name=name, task="act") for name in first]
    for number in range(20):
        after = dice.sample(first, 10)
        steps.append(StepDefinition(name=f"b{number}", task="act", after=after, rule="always"))
    await app.workflows.put(Graph(Definition(name="dense", steps=steps)))
    run = await app.runs.start("dense")
    await finisher.finish(run, *first[:1])
    task = await finisher.commits_once_waited_for(run.cancel())
    assert task.exception() is None
    assert (await ended(sandbox, run)).state == "cancelled"
    assert (await run.status()).ended_steps == 40


@pytest.mark.parametrize("locked", [True, False])
async def test_a_finish_ends_a_run_unless_somebody_has_locked_it(
    sandbox: Sandbox, shop: Shop, finisher: Finisher, locked: bool
) -> None:
    """It waits for no run: whoever has locked one may wait for the finish's own locks."""
    flow = sandbox.app.workflow("race")
    shop.add(flow, "a")
    await sandbox.app.queues.pause("default")
    run = await flow.start()
    other = await asyncpg.connect(await sandbox.app.database_url())
    await other.execute("begin")
    if locked:
        schema = sandbox.app.settings.schema
        await other.execute(f"select from {schema}.run where id = $1 for update", run.id)
    await finisher.finish(run, "a")
    await finisher.connection.execute("commit")
    assert (await run.status()).state == ("running" if locked else "succeeded")
    await other.close()
    assert (await ended(sandbox, run)).state == "succeeded"


@pytest.mark.parametrize("rule", ["all_succeeded", "one_succeeded"])
async def test_fan_in_counts_finishes_that_commit_at_the_same_time(
    sandbox: Sandbox, shop: Shop, finisher: Finisher, rule: str
) -> None:
    """Two workers finish the two steps before a third: each began before the other had committed."""
    flow = sandbox.app.workflow("fan-in")
    before = [shop.add(flow, name) for name in ("a", "b")]
    shop.add(flow, "joined", after=before, rule=rule)
    await sandbox.app.queues.pause("default")
    run = await flow.start()
    other = await asyncpg.connect(await sandbox.app.database_url())
    try:
        await finisher.finish(run, "a")
        second = Finisher(other, sandbox).finish(run, "b")
        task = await finisher.commits_once_waited_for(second)
        assert task.exception() is None
    finally:
        await other.close()
    assert (await run.steps())[2].state == "running"
    await sandbox.app.queues.resume("default")
    assert (await ended(sandbox, run)).state == "succeeded"
    assert shop.ran.count("joined") == 1
