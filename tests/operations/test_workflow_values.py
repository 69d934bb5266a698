"""What is passed between steps, and what decides about them."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from rota.errors import InvalidArguments
from rota.testing import Sandbox
from tests.support.shop import Shop, ended, states

# -- rules


async def test_an_optional_step_that_failed_is_no_success_of_one(
    sandbox: Sandbox, shop: Shop
) -> None:
    flow = sandbox.app.workflow("one")
    before = [shop.add(flow, "a", optional=True), shop.add(flow, "b")]
    shop.add(flow, "c", after=before, rule="one_succeeded")
    shop.broken = {"a", "b"}
    run = await flow.start()
    await sandbox.run_due()
    assert (await states(run))["c"] == "upstream_failed"
    shop.broken = {"a"}
    await run.resume()
    assert (await ended(sandbox, run)).state == "succeeded"
    assert shop.ran[2:] == ["b", "c"]


async def test_an_optional_step_that_failed_is_a_failure_of_one(
    sandbox: Sandbox, shop: Shop
) -> None:
    flow = sandbox.app.workflow("alert")
    shop.add(flow, "alert", after=shop.add(flow, "a", optional=True), rule="one_failed")
    shop.broken = {"a"}
    run = await flow.start()
    assert (await ended(sandbox, run)).state == "succeeded"
    assert shop.ran == ["a", "alert"]


def test_a_share_that_floats_miss_by_a_hair_is_whole(sandbox: Sandbox, shop: Shop) -> None:
    flow = sandbox.app.workflow("share")
    before = [shop.add(flow, f"p{number}") for number in range(100)]
    shop.add(flow, "c", after=before, tolerate=0.29)
    assert flow.graph.compiled()[100].tolerated == 29


async def test_a_long_chain_of_conditions_ends_the_run(sandbox: Sandbox, shop: Shop) -> None:
    flow = sandbox.app.workflow("chain")
    before = flow.step(shop.count)
    for number in range(1200):  # more than Python's calls may nest
        before = shop.add(flow, f"s{number}", after=before, when="input.day == 1", rule="all_ended")
    run = await flow.start(day="x")
    assert (await ended(sandbox, run)).state == "succeeded"
    assert len(await sandbox.app.runs.steps(run.id, state="skipped", limit=2000)) == 1200


async def test_runs_that_cannot_be_advanced_hold_up_no_others(
    sandbox: Sandbox, shop: Shop, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("rota.runtime.advancer._RUNS", 1)
    flow = sandbox.app.workflow("stuck")
    shop.add(flow, "a", when="input.day == 1")
    stuck, fine = await flow.start(day=2), await flow.start(day=2)
    schema, url = sandbox.app.settings.schema, await sandbox.app.database_url()
    await _execute(url, f"update {schema}.run set input = '[]' where id = $1", stuck.id)
    with caplog.at_level(logging.CRITICAL, "rota.workflows"):
        assert (await ended(sandbox, fine)).state == "succeeded"
    assert (await stuck.status()).state != "failed"


async def _execute(url: str, query: str, *arguments: Any) -> None:
    import asyncpg

    connection = await asyncpg.connect(url)
    await connection.execute(query, *arguments)
    await connection.close()


# -- arguments and results


async def test_objects_with_the_names_of_references_are_passed_as_they_are(
    sandbox: Sandbox,
) -> None:
    got: list[Any] = []

    @sandbox.app.task
    async def take(value: dict[str, Any]) -> Any:
        got.append(value)
        return value

    flow = sandbox.app.workflow("names")
    odd: dict[str, Any] = {"$step": "none", "path": [1], "more": {"$value": {"$input": "day"}}}
    first = flow.step(take, odd, name="a")
    flow.step(take, {"$input": first, "list": [{"$step": 1}]}, name="b")
    run = await flow.start()
    assert (await ended(sandbox, run)).state == "succeeded"
    assert got == [odd, {"$input": odd, "list": [{"$step": 1}]}]


def test_what_is_no_number_is_no_constant(sandbox: Sandbox) -> None:
    @sandbox.app.task
    async def take(value: Any) -> None: ...

    with pytest.raises(InvalidArguments, match="NaN and infinity have no JSON form"):
        sandbox.app.workflow("nan").step(take, {"deep": [float("nan")]})


async def test_the_results_of_a_sub_workflow_with_several_ends_are_passed_by_name(
    sandbox: Sandbox, shop: Shop
) -> None:
    @sandbox.app.task
    async def take(value: Any) -> Any:
        return value

    inner = sandbox.app.workflow("inner")
    middle = sandbox.app.workflow("middle")
    outer = sandbox.app.workflow("outer")
    for name in ("x", "y"):
        shop.add(inner, name)
    shop.add(middle, "z")
    middle.step(inner)
    outer.step(take, outer.step(middle))
    run = await outer.start()
    await sandbox.run_due()
    assert await run.result(1) == {"z": "z", "inner": {"x": "x", "y": "y"}}


async def test_a_result_with_a_nul_reaches_a_sub_workflow(sandbox: Sandbox) -> None:
    got: list[str] = []

    @sandbox.app.task
    async def give() -> str:
        return "a\0b"

    @sandbox.app.task
    async def take(text: str) -> None:
        got.append(text)

    inner = sandbox.app.workflow("inner")
    inner.step(take)
    outer = sandbox.app.workflow("outer")
    outer.step(inner, text=outer.step(give))
    run = await outer.start()
    assert (await ended(sandbox, run)).state == "succeeded"
    assert got == ["a\0b"]


@pytest.mark.parametrize("plain", [True, False])
async def test_an_exactly_once_step_whose_result_is_dropped_fails_and_leaves_nothing(
    sandbox: Sandbox, plain: bool
) -> None:
    app = sandbox.app
    schema = app.settings.schema
    url = await app.database_url()
    await _execute(url, f"create table {schema}.written (text text)")
    insert = f"insert into {schema}.written values ('x')"

    if plain:

        @app.task(guarantee="exactly_once", name="large")
        def large_plain(ctx: Any) -> str:
            ctx.connection.execute(insert)
            return "x" * (app.settings.max_result_bytes + 1)

        task: Any = large_plain
    else:

        @app.task(guarantee="exactly_once", name="large")
        async def large(ctx: Any) -> str:
            await ctx.connection.execute(insert)
            return "x" * (app.settings.max_result_bytes + 1)

        task = large
    flow = app.workflow("large")
    flow.step(task)
    run = await flow.start()
    assert (await ended(sandbox, run)).state == "failed"
    step = await app.runs.step(run.id, "large")
    assert "over max_result_bytes" in step.error["message"]
    [job] = await app.jobs.list(task="large")
    assert (job.state, job.attempt) == ("failed", 1)
    import asyncpg

    connection = await asyncpg.connect(url)
    assert await connection.fetchval(f"select count(*) from {schema}.written") == 0
    await connection.close()


async def test_a_result_that_many_steps_read_is_stored_once(sandbox: Sandbox) -> None:
    app, large, seen = sandbox.app, "x" * 50_000, []

    @app.task
    async def source() -> str:
        return large

    @app.task
    async def reader(text: str, number: int) -> None:
        seen.append(len(text))

    flow = app.workflow("wide")
    text = flow.step(source)
    for number in range(20):
        flow.step(reader, text, number, name=f"reader-{number}")
    await flow.start()
    await sandbox.run_due()
    assert seen == [50_000] * 20
    async with sandbox._database.connection() as connection:
        longest = await connection.fetchval(
            f"select max(octet_length(payload::text)) from {app.settings.schema}.past"
        )
    assert longest < 200
