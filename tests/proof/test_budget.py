"""A job costs what it has always cost, and the guard that says so notices what is put in its way."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import asyncpg
import pytest

from bench import budget
from bench.budget import Costs, Measure
from rota import App, Settings
from rota.operations.submissions import Submissions
from rota.store.jobs import JobStore
from rota.worker.runners.loop import LoopRunner

pytestmark = pytest.mark.proof  # it measures: on a machine that others load, apart from other tests

WORK, BULK, SINGLE = "claim, run and finish", "submit in bulk", "submit one by one"


@pytest.fixture
async def measure(make_app: Callable[..., App]) -> Measure:
    app = make_app()

    @app.task
    async def noop() -> None:
        pass

    try:
        await budget.prepare(app)
    except asyncpg.PostgresError as error:  # a server of somebody's own, without it
        pytest.skip(f"this PostgreSQL doesn't count statements: {error}")
    return Measure(app, noop)


def over(costs: Costs) -> list[str]:
    return budget.excesses(costs, budget.load())


async def test_jobs_cost_what_they_may(measure: Measure) -> None:
    assert over(await measure.costs()) == []


async def test_a_sleep_in_each_job_is_noticed(
    measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    _before(monkeypatch, LoopRunner, "run", lambda *_: time.sleep(0.0005))

    found = over(await measure.costs(1))

    assert any(told.startswith(WORK) and "stood still" in told for told in found), found


async def test_a_sleep_in_each_submit_is_noticed(
    measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    _before(monkeypatch, Submissions, "_build", lambda *_: time.sleep(0.0005))

    found = over(await measure.costs(1))

    assert any(told.startswith(SINGLE) and "stood still" in told for told in found), found


async def test_busy_time_in_each_job_is_noticed(
    measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    def burn(*_: Any) -> None:
        end = time.thread_time() + 0.0005
        while time.thread_time() < end:
            pass

    _before(monkeypatch, LoopRunner, "run", burn)

    found = over(await measure.costs(1))

    assert any(told.startswith(WORK) and "processor time" in told for told in found), found


async def test_an_extra_statement_for_each_job_is_noticed(
    measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = LoopRunner._attempt

    async def with_a_look(self: LoopRunner, work: Any, task: Any) -> Any:
        database = (await measure._app.store()).database
        await database.fetchval("now")
        return await attempt(self, work, task)

    monkeypatch.setattr(LoopRunner, "_attempt", with_a_look)

    found = over(await measure.costs(1))

    assert f"{WORK}: {budget.load()[WORK].statements + budget.JOBS} statements" in str(found)


async def test_an_extra_statement_for_each_submit_is_noticed(
    measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = JobStore.submit_jobs

    async def with_a_look(self: JobStore, jobs: Any) -> Any:
        await self.now()
        return await submit(self, jobs)

    monkeypatch.setattr(JobStore, "submit_jobs", with_a_look)

    found = over(await measure.costs(1))

    assert f"{SINGLE}: {budget.load()[SINGLE].statements + budget.SINGLES} statements" in str(found)


async def test_an_index_that_every_job_has_to_enter_is_noticed(measure: Measure) -> None:
    schema = measure._app.settings.schema
    async with (await measure._app.store()).database.connection() as connection:
        await connection.execute(f"create index planted on {schema}.past (due_at)")
        try:
            found = over(await measure.costs(1))
        finally:
            await connection.execute(f"drop index {schema}.planted")

    assert any(told.startswith(WORK) and "records of WAL" in told for told in found), found


def test_the_budget_names_all_that_is_measured() -> None:
    assert set(budget.load()) == {SINGLE, BULK, WORK}
    assert Settings().log_bytes > 0  # with history, fences and logs on: as people run it


def _before(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, first: Any) -> None:
    """Plants something in front of a method."""
    method = getattr(owner, name)

    def planted(self: Any, *arguments: Any, **options: Any) -> Any:
        first(self)
        return method(self, *arguments, **options)

    monkeypatch.setattr(owner, name, planted)
