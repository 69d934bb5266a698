"""What a resume repeats, what new code does with a history, and how runs end that can't go on."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.durable.check import check_replay, history_of
from rota.durable.context import DurableContext
from rota.errors import RunCancelled, StepFailed
from rota.run_handle import RunHandle
from rota.testing import Sandbox
from tests.support.durable_shop import Shop


@pytest.fixture
def shop(sandbox: Sandbox) -> Shop:
    return Shop(sandbox.app)


async def resumed(sandbox: Sandbox, shop: Shop, run: RunHandle) -> list[str]:
    """Resume a run that has failed, with everything mended. Return what ran then."""
    await sandbox.run_due()
    assert (await run.status()).state == "failed"
    shop.broken.clear()
    shop.ran.clear()
    await run.resume()
    await sandbox.run_due()
    assert (await run.status()).state == "succeeded"
    return shop.ran


async def test_a_resume_repeats_of_a_gather_only_what_failed(sandbox: Sandbox, shop: Shop) -> None:
    shop.broken = {"b", "ship 2"}

    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        await ctx.gather(
            *(ctx.step(shop.note, each) for each in "abc"),
            *(ctx.call(shop.ship, str(each)) for each in range(4)),
        )
        await ctx.step(shop.note, "after")

    assert await resumed(sandbox, shop, await order.start()) == ["b", "ship 2", "after"]


async def test_a_resume_repeats_of_the_branches_of_a_gather_only_what_failed(
    sandbox: Sandbox, shop: Shop
) -> None:
    shop.broken = {"1 mail", "inner y"}

    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        async def deliver(number: int) -> None:
            await ctx.step(shop.note, f"{number} pack")
            await ctx.call(shop.ship, str(number))
            await ctx.step(shop.note, f"{number} mail")

        async def nested() -> None:
            await ctx.gather(*(ctx.step(shop.note, f"inner {each}") for each in "xyz"))
            await ctx.step(shop.note, "nested")

        await ctx.gather(*(deliver(number) for number in range(3)), nested())

    assert await resumed(sandbox, shop, await order.start()) == ["1 mail", "inner y", "nested"]


async def test_what_a_function_did_after_a_gather_had_failed_is_forgotten(
    sandbox: Sandbox, shop: Shop
) -> None:
    shop.broken = {"b"}

    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        try:
            await ctx.gather(*(ctx.step(shop.note, each) for each in "abc"))
        except StepFailed:
            await ctx.gather(ctx.step(shop.note, "refund"), ctx.step(shop.note, "mail"))
            raise
        await ctx.step(shop.note, "after")

    assert await resumed(sandbox, shop, await order.start()) == ["b", "after"]


async def test_new_code_that_raises_differs_from_the_history(sandbox: Sandbox, shop: Shop) -> None:
    code = {"before": False, "after": False}

    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        await ctx.step(shop.note, "one")
        if code["before"]:
            raise KeyError("country")
        await ctx.step(shop.note, "two")
        if code["after"]:
            raise ZeroDivisionError("no parts")
        await ctx.wait("go")

    run = await order.start()
    await sandbox.run_due()

    async def problem() -> str | None:
        history = history_of(await run.status(), await sandbox.app.runs.history(run.id))
        return await check_replay(order, {}, history)

    assert await problem() is None
    code["before"] = True
    said = await problem()
    assert said is not None
    assert said.startswith("the code raises KeyError: ")
    assert "where the history has step" in said
    code.update(before=False, after=True)
    assert await problem() == (
        "the code raises ZeroDivisionError: no parts where the history has signal 'go' (number 3)"
    )


async def test_a_step_that_failed_in_the_history_is_no_difference(
    sandbox: Sandbox, shop: Shop
) -> None:
    shop.broken = {"one"}

    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        await ctx.step(shop.note, "one")

    run = await order.start()
    await sandbox.run_due()
    checkpoints = await sandbox.app.runs.history(run.id)
    history = history_of(await run.status(), [each for each in checkpoints if each.kind == "step"])
    assert await check_replay(order, {}, history) is None


async def test_a_parked_run_ends_at_its_deadline(sandbox: Sandbox, shop: Shop) -> None:
    code = ["one"]

    @sandbox.app.durable(deadline="1h")
    async def order(ctx: DurableContext) -> None:
        await ctx.options(name=code[0]).step(shop.note, code[0])
        await ctx.wait("go")

    run = await order.start()
    await sandbox.run_due()
    code[0] = "two"
    await run.send("go")
    await sandbox.run_due()
    parked = await run.status()
    assert (parked.state, parked.problem is not None) == ("running", True)
    await sandbox.run_for(timedelta(hours=2))
    ended = await run.status()
    assert (ended.state, (ended.error or {})["type"]) == ("failed", "DeadlineExceeded")
    assert ended.problem is not None
    code[0] = "one"
    await run.resume()
    await sandbox.run_due()
    assert (await run.status()).state == "succeeded"
    assert shop.ran == ["one"]


@pytest.mark.parametrize("what", ["job", "run"])
async def test_a_function_that_has_not_heard_of_its_cancel_calls_nothing(
    sandbox: Sandbox, shop: Shop, what: str
) -> None:
    heard: list[str] = []

    @sandbox.app.durable
    async def delivery(ctx: DurableContext) -> None:
        await ctx.step(shop.note, "delivery")

    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        await ctx.step(shop.note, "one")
        if not heard:  # while the function runs, and without that it asks for anything
            heard.append("cancelled")
            await sandbox.app.runs.cancel(run.id)
        try:
            await (ctx.call(shop.ship, "a") if what == "job" else ctx.call(delivery))
        except RunCancelled:
            heard.append("told")
            await ctx.call(shop.ship, "back")
            raise

    run = await order.start()
    await sandbox.run_due()
    assert heard[:2] == ["cancelled", "told"]
    assert (await run.status()).state == "cancelled"
    assert shop.ran == ["one", "ship back"]
    assert [job.task for job in await sandbox.app.jobs.list(task="ship")] == ["ship"]
