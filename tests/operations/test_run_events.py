"""What people hear of runs: that they failed, are late, or were parked."""

from __future__ import annotations

from typing import Any

import pytest

from rota import Retry
from rota.durable.context import DurableContext
from rota.observe import stats as stats_module
from rota.observe.exposition import Metrics
from rota.operations.event_text import sentence
from rota.testing import Sandbox
from tests.support.durable_shop import Shop


@pytest.fixture
def shop(sandbox: Sandbox) -> Shop:
    return Shop(sandbox.app)


async def events(sandbox: Sandbox, kind: str) -> list[Any]:
    return [each for each in await sandbox.app.events.list() if each.kind == kind]


async def test_a_run_that_fails_is_told_with_its_step_and_again_when_it_was_resumed(
    sandbox: Sandbox, shop: Shop
) -> None:
    shop.broken.add("ship a")
    flow = sandbox.app.workflow("orders")
    flow.step(shop.ship, "a")
    run = await flow.start()
    await sandbox.run_due()
    [event] = await events(sandbox, "run_failed")
    assert (event.task, event.detail["run"], event.detail["step"]) == (
        "orders",
        str(run.id),
        "ship",
    )
    told = sentence({"task": event.task, "kind": event.kind, "detail": event.detail})
    assert told == "a run of orders has failed at step ship: ValueError: ship a is broken"
    await run.resume()
    await sandbox.run_due()
    assert [each.detail["round"] for each in await events(sandbox, "run_failed")] == [2, 1]


async def test_what_succeeds_or_is_a_part_of_another_run_is_not_told(
    sandbox: Sandbox, shop: Shop
) -> None:
    @sandbox.app.task(retry=Retry(max_attempts=1))
    async def fail() -> None:
        raise ValueError("no")

    part = sandbox.app.workflow("part")
    part.step(fail)
    whole = sandbox.app.workflow("whole")
    whole.step(part, optional=True)
    run = await whole.start()
    await sandbox.run_due()
    assert (await run.status()).state == "succeeded"
    assert await events(sandbox, "run_failed") == []


async def test_a_run_that_misses_its_deadline_is_late_and_then_failed(
    sandbox: Sandbox, shop: Shop
) -> None:
    @sandbox.app.durable(deadline="1h")
    async def order(ctx: DurableContext) -> None:
        await ctx.wait("approved")

    run = await order.start()
    await sandbox.run_due()
    await sandbox.advance(minutes=61)
    await sandbox.run_due()
    assert (await run.status()).state == "failed"
    [late] = await events(sandbox, "run_late")
    assert late.detail == {"run": str(run.id), "round": 1, "deadline": 3600}
    assert len(await events(sandbox, "run_failed")) == 1


async def test_a_parked_run_is_told_and_counted(sandbox: Sandbox, shop: Shop) -> None:
    steps = ["pay"]

    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        for step in steps:
            await ctx.options(name=step).step(shop.note, step)
        await ctx.wait("approved")

    run = await order.start()
    await sandbox.run_due()
    steps[0] = "mail"
    await run.send("approved")
    await sandbox.run_due()
    [event] = await events(sandbox, "run_parked")
    assert event.detail["run"] == str(run.id)
    assert "where the history has step 'pay'" in event.detail["message"]


async def test_runs_are_counted_by_state_and_outcome(
    sandbox: Sandbox, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stats_module, "_AT_MOST_EVERY", 0.0)
    monkeypatch.setattr(stats_module, "_SHARE", 0)

    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        await ctx.wait("approved")

    metrics = Metrics(sandbox._database)
    first, second = [await order.start() for _ in range(2)]
    await sandbox.run_due()
    text = (await metrics.render())[0].decode()
    assert 'rota_runs{namespace="default",state="suspended",workflow="order"} 2.0' in text
    await first.send("approved")
    await second.cancel()
    await sandbox.run_due()
    await sandbox.advance(minutes=1)  # what has ended is counted when all of it is committed
    text = (await metrics.render())[0].decode()
    assert 'rota_runs{namespace="default",state="suspended"' not in text
    for outcome in ("succeeded", "cancelled"):
        labels = f'namespace="default",outcome="{outcome}",workflow="order"'
        assert f"rota_runs_ended_total{{{labels}}} 1.0" in text
