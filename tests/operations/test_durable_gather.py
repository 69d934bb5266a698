"""What lets a function go on that waits for several things: one of them, or the last."""

from __future__ import annotations

from typing import Any

import pytest

from rota import Retry
from rota.durable.context import DurableContext
from rota.durable.replay import Replay
from rota.errors import CallFailed, RunCancelled, StepFailed, WaitTimedOut
from rota.testing import Sandbox
from tests.support.durable_shop import Shop

BEGUN = "begun"  # each time the function runs from its beginning


@pytest.fixture
def shop(sandbox: Sandbox) -> Shop:
    return Shop(sandbox.app)


async def test_a_gather_of_calls_goes_on_after_the_last_and_not_after_each(
    sandbox: Sandbox, shop: Shop
) -> None:
    @sandbox.app.durable
    async def order(ctx: DurableContext) -> list[str]:
        shop.note(BEGUN)
        return await ctx.gather(*(ctx.call(shop.ship, str(part)) for part in range(30)))

    run = await order.start()
    await sandbox.run_due()
    assert await run.result(1) == [f"{part} shipped" for part in range(30)]
    assert shop.ran.count(BEGUN) == 2
    assert len(shop.ran) == 32


async def test_a_gather_of_coroutines_goes_on_after_each(sandbox: Sandbox, shop: Shop) -> None:
    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        async def deliver(part: str) -> None:
            await ctx.call(shop.ship, part)
            await ctx.step(shop.note, f"mail {part}")

        await ctx.gather(deliver("a"), ctx.wait("approved"))

    run = await order.start()
    await sandbox.run_due()
    assert shop.ran == ["ship a", "mail a"]
    await run.send("approved")
    await sandbox.run_due()
    assert (await run.status()).state == "succeeded"


async def test_a_gather_goes_on_when_its_last_call_has_failed(sandbox: Sandbox, shop: Shop) -> None:
    shop.broken.add("ship 3")

    @sandbox.app.durable
    async def order(ctx: DurableContext) -> str:
        try:
            await ctx.gather(*(ctx.call(shop.ship, str(part)) for part in range(4)))
        except CallFailed as error:
            return error.failure.message
        return ""

    run = await order.start()
    await sandbox.run_due()
    assert await run.result(1) == "ship 3 is broken"


@pytest.mark.parametrize("first", ["call", "sleep"])
async def test_a_sleep_that_is_gathered_with_a_call_ends_in_time(
    sandbox: Sandbox, shop: Shop, first: str
) -> None:
    @sandbox.app.durable
    async def order(ctx: DurableContext) -> Any:
        work = ctx.call(shop.ship.options(delay=60 if first == "call" else 7200), "a")
        await ctx.gather(work, ctx.sleep("1h"), ctx.sleep("30m"))

    run = await order.start()
    await sandbox.run_due()
    for minutes, done in ((59, False), (2, first == "call"), (60, True)):
        await sandbox.advance(minutes=minutes)
        await sandbox.run_due()
        assert ((await run.status()).state == "succeeded") is done


async def test_a_signal_that_is_gathered_may_come_first_last_or_never(
    sandbox: Sandbox, shop: Shop
) -> None:
    @sandbox.app.durable
    async def order(ctx: DurableContext) -> list[Any]:
        waits = [ctx.wait(name, timeout="1h") for name in ("first", "last", "never")]
        results = await ctx.gather(ctx.call(shop.ship, "a"), *waits, return_exceptions=True)
        return [type(each).__name__ if isinstance(each, Exception) else each for each in results]

    run = await order.start()
    await run.send("first", 1)
    await sandbox.run_due()
    await run.send("last", 2)
    await sandbox.run_due()
    assert (await run.status()).state == "running"
    await sandbox.advance(minutes=61)
    await sandbox.run_due()
    assert await run.result(1) == ["a shipped", 1, 2, "WaitTimedOut"]


async def test_the_next_try_of_a_gathered_step_does_not_wait_for_the_calls(
    sandbox: Sandbox, shop: Shop
) -> None:
    shop.broken.add("charge 1")

    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        late = ctx.call(shop.ship.options(delay=3600), "a")
        await ctx.gather(ctx.step(shop.charge, "1"), late, ctx.wait("approved"))

    await order.start()
    await sandbox.run_due()
    shop.broken.clear()
    await sandbox.advance(seconds=11)
    await sandbox.run_due()
    assert shop.ran == ["charge 1", "charge 1"]


async def test_a_race_inside_a_gather_is_won_by_the_first(sandbox: Sandbox, shop: Shop) -> None:
    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        async def approve() -> None:
            winner, _ = await ctx.race(ctx.wait("yes"), ctx.wait("no"))
            await ctx.step(shop.note, ["yes", "no"][winner])

        await ctx.gather(approve(), ctx.call(shop.ship.options(delay=3600), "a"))

    run = await order.start()
    await sandbox.run_due()
    await run.send("no")
    await sandbox.run_due()
    assert shop.ran == ["no"]


async def test_a_cancel_does_not_wait_for_what_is_gathered(sandbox: Sandbox, shop: Shop) -> None:
    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        try:
            await ctx.gather(ctx.wait("a"), ctx.wait("b"), ctx.wait("c"))
        except RunCancelled:
            await ctx.step(shop.note, "refund")
            raise

    run = await order.start()
    await sandbox.run_due()
    await run.cancel()
    await sandbox.run_due()
    assert (await run.status()).state == "cancelled"
    assert shop.ran == ["refund"]


async def test_no_operation_of_a_gather_begins_after_a_cancel(sandbox: Sandbox, shop: Shop) -> None:
    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        try:
            await ctx.gather(*(ctx.call(shop.ship, str(part)) for part in range(3)))
        except RunCancelled:
            await ctx.gather(*(ctx.step(shop.note, f"refund {part}") for part in range(2)))
            raise

    run = await order.start()
    await run.cancel()
    await sandbox.run_due()
    assert (await run.status()).state == "cancelled"
    assert shop.ran == ["refund 0", "refund 1"]


async def test_a_gather_tells_of_a_cancel_also_if_another_branch_has_failed_before(
    sandbox: Sandbox, shop: Shop
) -> None:
    """It is told once. Who catches the other failure would go on as if nothing had happened."""

    async def fail() -> None:
        raise ValueError("no")

    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        try:
            await ctx.gather(ctx.options(retry=Retry(max_attempts=1)).step(fail), ctx.wait("a"))
        except StepFailed:
            await ctx.call(shop.ship, "a")
        except RunCancelled:
            await ctx.step(shop.note, "refund")
            raise

    run = await order.start()
    await sandbox.run_due()
    await run.cancel()
    await sandbox.run_due()
    assert (await run.status()).state == "cancelled"
    assert shop.ran == ["refund"]


async def test_a_run_that_was_paused_while_its_last_wait_ended_goes_on_when_it_is_resumed(
    sandbox: Sandbox, shop: Shop
) -> None:
    @sandbox.app.durable
    async def order(ctx: DurableContext) -> list[Any]:
        return await ctx.gather(ctx.wait("a"), ctx.wait("b"))

    run = await order.start()
    await sandbox.run_due()
    await run.send("a", 1)
    await run.pause()
    await run.send("b", 2)
    await sandbox.run_due()
    assert (await run.status()).paused_at is not None
    await run.resume()
    await sandbox.run_due()
    assert await run.result(1) == [1, 2]


async def test_all_that_is_gathered_may_time_out(sandbox: Sandbox, shop: Shop) -> None:
    @sandbox.app.durable
    async def order(ctx: DurableContext) -> str:
        try:
            await ctx.gather(ctx.wait("a", timeout="1h"), ctx.wait("b", timeout="2h"))
        except WaitTimedOut as error:
            return str(error)
        return ""

    run = await order.start()
    await sandbox.run_due()
    await sandbox.advance(minutes=121)
    await sandbox.run_due()
    assert await run.result(1) == "no signal 'a' came in time"


async def test_a_pause_that_is_over_when_the_function_has_seen_it_holds_nothing_up(
    sandbox: Sandbox, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    @sandbox.app.durable
    async def order(ctx: DurableContext) -> str:
        return "done"

    suspend_paused = Replay.suspend_paused

    async def after_the_resume(replay: Replay) -> None:
        await run.resume()
        await suspend_paused(replay)

    monkeypatch.setattr(Replay, "suspend_paused", after_the_resume)
    run = await order.start()
    await run.pause()
    await sandbox.run_due()
    assert await run.result(1) == "done"
