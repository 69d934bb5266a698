"""Durable functions that are resumed, retried and cancelled: what was dealt with is not done again."""

from __future__ import annotations

from typing import Any

import pytest

from rota import Retry
from rota.durable.branches import Interrupted
from rota.durable.context import DurableContext
from rota.errors import CallFailed, RunCancelled, StepFailed, StoreUnavailable, WaitTimedOut
from rota.operations.run_advance import RunAdvance
from rota.run_handle import RunHandle
from rota.store.workflows import WorkflowStore
from rota.testing import Sandbox
from tests.support.durable_shop import Shop


@pytest.fixture
def shop(sandbox: Sandbox) -> Shop:
    return Shop(sandbox.app, pause=3600)


async def state(sandbox: Sandbox, run: RunHandle) -> str:
    await sandbox.run_due()
    return (await run.status()).state


# -- resuming


async def test_a_failure_that_was_caught_is_left_behind_when_the_run_is_resumed(
    sandbox: Sandbox, shop: Shop
) -> None:
    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        try:
            await ctx.wait("approved", timeout="1h")
        except WaitTimedOut:
            await ctx.step(shop.note, "pay")
        await ctx.step(shop.note, "mail")

    shop.broken.add("mail")
    run = await order.start()
    await sandbox.run_due()
    await sandbox.advance(seconds=3601)
    assert await state(sandbox, run) == "failed"
    shop.broken.clear()
    await run.resume()
    assert await state(sandbox, run) == "succeeded"
    assert shop.ran == ["pay", "mail", "mail"]


async def test_a_function_that_fails_by_itself_repeats_nothing_when_it_is_resumed(
    sandbox: Sandbox, shop: Shop
) -> None:
    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        try:
            await ctx.step(shop.note, "try")
        except StepFailed:
            await ctx.step(shop.note, "pay")
        if shop.broken:
            raise KeyError("a mistake in the code")

    shop.broken.add("try")
    run = await order.start()
    assert await state(sandbox, run) == "failed"
    shop.broken.clear()
    await run.resume()
    assert await state(sandbox, run) == "succeeded"
    assert shop.ran == ["try", "pay"]


async def test_a_failure_that_was_cleaned_up_after_and_raised_is_where_a_resume_begins(
    sandbox: Sandbox, shop: Shop
) -> None:
    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        await ctx.step(shop.note, "pay")
        try:
            await ctx.step(shop.note, "ship")
        except StepFailed as error:
            await ctx.step(shop.note, "refund")
            raise RuntimeError("not shipped") from error

    shop.broken.add("ship")
    run = await order.start()
    assert await state(sandbox, run) == "failed"
    shop.broken.clear()
    await run.resume()
    assert await state(sandbox, run) == "succeeded"
    assert shop.ran == ["pay", "ship", "refund", "ship"]


async def test_all_failures_of_a_gather_are_repeated_by_a_resume(
    sandbox: Sandbox, shop: Shop
) -> None:
    @sandbox.app.durable
    async def order(ctx: DurableContext) -> list[Any]:
        await ctx.step(shop.note, "pay")
        return await ctx.gather(*(ctx.call(shop.ship, part) for part in "abc"))

    shop.broken |= {"ship a", "ship c"}
    run = await order.start()
    assert await state(sandbox, run) == "failed"
    shop.broken.clear()
    await run.resume()
    assert await state(sandbox, run) == "succeeded"
    assert shop.ran.count("pay") == 1
    assert await run.result(1) == ["a shipped", "b shipped", "c shipped"]


async def test_a_retry_goes_back_to_its_step_and_not_to_a_failure_before_it(
    sandbox: Sandbox, shop: Shop
) -> None:
    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        try:
            await ctx.options(name="look").step(shop.note, "look")
        except StepFailed:
            await ctx.options(name="pay").step(shop.note, "pay")
        await ctx.options(name="mail").step(shop.note, "mail")

    shop.broken.add("look")
    run = await order.start()
    assert await state(sandbox, run) == "succeeded"
    await run.retry("mail")
    assert await state(sandbox, run) == "succeeded"
    assert shop.ran == ["look", "pay", "mail", "mail"]


async def test_a_child_run_that_is_resumed_by_its_workflow_keeps_what_it_had_dealt_with(
    sandbox: Sandbox, shop: Shop
) -> None:
    @sandbox.app.durable
    async def inner(ctx: DurableContext) -> None:
        try:
            await ctx.step(shop.note, "look")
        except StepFailed:
            await ctx.step(shop.note, "pay")
        await ctx.step(shop.note, "mail")

    outer = sandbox.app.workflow("outer")
    outer.step(inner)
    shop.broken |= {"look", "mail"}
    run = await outer.start()
    assert await state(sandbox, run) == "failed"
    shop.broken.clear()
    await run.resume()
    assert await state(sandbox, run) == "succeeded"
    assert shop.ran == ["look", "pay", "mail", "mail"]


async def test_a_function_that_turns_its_leaving_into_an_error_is_left_all_the_same(
    sandbox: Sandbox, shop: Shop
) -> None:
    @sandbox.app.durable
    async def order(ctx: DurableContext) -> str:
        try:
            return str(await ctx.wait("go"))
        except BaseException as error:
            raise ValueError("no") from error

    run = await order.start()
    assert await state(sandbox, run) == "running"
    await run.send("go", 1)
    assert await state(sandbox, run) == "succeeded"


# -- cancelling


async def test_a_called_job_that_is_cancelled_is_a_call_that_failed(
    sandbox: Sandbox, shop: Shop
) -> None:
    app = sandbox.app

    @app.durable
    async def child(ctx: DurableContext) -> None:
        await ctx.wait("never")

    @app.durable
    async def order(ctx: DurableContext) -> list[str]:
        failures = []
        for call in (ctx.call(shop.ship.options(delay=3600), "a"), ctx.call(child)):
            try:
                await call
            except CallFailed as error:
                failures.append(error.failure.type)
        try:
            await ctx.wait("never")
        except RunCancelled:
            shop.ran += [*failures, "told"]
            raise
        return failures

    run = await order.start()
    await sandbox.run_due()
    [call] = await app.runs.history(run.id)
    assert call.job_id is not None
    await app.jobs.cancel(call.job_id)
    await sandbox.run_due()
    call = (await app.runs.history(run.id))[-1]
    assert call.job_id is not None
    await app.runs.cancel(call.job_id)
    assert await state(sandbox, run) == "running"
    await run.cancel()
    assert await state(sandbox, run) == "cancelled"
    assert shop.ran == ["Cancelled", "Cancelled", "told"]


async def test_a_cancel_is_told_in_place_of_the_next_try_of_a_step(
    sandbox: Sandbox, shop: Shop
) -> None:
    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        try:
            await ctx.gather(
                ctx.step(shop.charge, "o-1"), ctx.call(shop.ship.options(delay=9999), "a")
            )
        except RunCancelled:
            await ctx.call(shop.ship, "letter")
            raise

    shop.broken.add("charge o-1")
    run = await order.start()
    await sandbox.run_due()
    await run.cancel()
    assert await state(sandbox, run) == "cancelled"
    assert shop.ran == ["charge o-1", "ship letter"]
    shop.broken.clear()
    await run.resume()
    await sandbox.run_due()
    await sandbox.advance(seconds=10_000)
    assert await state(sandbox, run) == "succeeded"


async def test_what_a_function_does_to_clean_up_is_not_closed_by_a_late_notice(
    sandbox: Sandbox, shop: Shop
) -> None:
    """The function sees the cancel before whoever cancels comes to tell it."""
    app = sandbox.app
    store = WorkflowStore((await app.store()).database)

    async def close() -> None:
        async with store.database.shared_transaction("test"):
            await store.lock_run(run.id)
            await store.close_run(run.id)

    @app.durable
    async def order(ctx: DurableContext) -> None:
        try:
            await ctx.step(close)
            await ctx.step(shop.note, "never")
        except RunCancelled:
            await ctx.call(shop.ship.options(delay=60), "letter")
            raise

    run = await order.start()
    await sandbox.run_due()
    await RunAdvance(store.database).advance(run.id)
    await sandbox.advance(seconds=61)
    assert await state(sandbox, run) == "cancelled"
    assert shop.ran == ["ship letter"]


async def test_a_cancel_at_the_moment_of_the_suspension_is_told_once(
    sandbox: Sandbox, shop: Shop
) -> None:
    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        async def cancelled() -> None:
            await ctx.wait("never")

        async def cancel() -> None:
            await run.cancel()

        try:
            await ctx.gather(cancelled(), ctx.step(cancel))
        except RunCancelled:
            await ctx.step(shop.note, "refund")
            await ctx.call(shop.ship, "letter")
            raise

    run = await order.start()
    assert await state(sandbox, run) == "cancelled"
    assert shop.ran == ["refund", "ship letter"]


async def test_a_step_of_a_task_that_runs_at_most_once_is_a_job(
    sandbox: Sandbox, shop: Shop
) -> None:
    @sandbox.app.task(guarantee="at_most_once")
    async def pay() -> str:
        return "paid"

    @sandbox.app.durable
    async def order(ctx: DurableContext) -> str:
        return await ctx.step(pay)

    run = await order.start()
    assert await state(sandbox, run) == "succeeded"
    assert [each.kind for each in await sandbox.app.runs.history(run.id)] == ["call"]


# -- what was passed


async def test_a_cancel_is_told_where_the_function_waits_not_at_a_sleep_that_it_has_passed(
    sandbox: Sandbox, shop: Shop
) -> None:
    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        await ctx.sleep(0.01)
        await ctx.step(shop.note, "charge")
        try:
            await ctx.wait("approved")
        except RunCancelled:
            await ctx.step(shop.note, "refund")
            raise

    run = await order.start()
    await sandbox.run_due()
    await run.cancel()
    assert await state(sandbox, run) == "cancelled"
    assert shop.ran == ["charge", "refund"]


async def test_a_cancel_is_not_told_at_a_sleep_that_was_passed_before_a_crash(
    sandbox: Sandbox, shop: Shop
) -> None:
    async def charge() -> None:
        await sandbox.advance(seconds=1)
        await run.cancel()
        raise Interrupted("as if the worker went down, before the end of the sleep was written")

    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        await ctx.sleep(0.01)
        try:
            await ctx.step(charge)
        except RunCancelled:
            await ctx.step(shop.note, "refund")
            raise

    run = await order.start()
    assert await state(sandbox, run) == "cancelled"
    assert shop.ran == ["refund"]


async def test_a_cancel_that_only_the_losers_of_a_race_were_told_of_is_told_again(
    sandbox: Sandbox, shop: Shop
) -> None:
    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        await ctx.race(ctx.sleep(60), ctx.wait("approved"))
        try:
            await ctx.step(shop.note, "charge")
        except RunCancelled:
            await ctx.step(shop.note, "refund")
            raise

    run = await order.start()
    await sandbox.run_due()
    await sandbox.advance(seconds=61)
    await run.cancel()
    assert await state(sandbox, run) == "cancelled"
    assert shop.ran == ["refund"]


class Odd(Exception):
    """Has what `RetryAfter` has, and can't be written."""

    seconds = "soon"

    def __str__(self) -> str:
        raise ValueError("no words")


async def test_an_odd_exception_of_a_step_is_recorded_and_tried_again_by_its_policy(
    sandbox: Sandbox, shop: Shop
) -> None:
    async def odd() -> None:
        shop.note("odd")
        raise Odd

    @sandbox.app.durable
    async def order(ctx: DurableContext) -> str:
        try:
            await ctx.options(retry=Retry(max_attempts=2, base=60)).step(odd)
        except StepFailed as error:
            return error.failure.message
        return ""

    run = await order.start()
    await sandbox.run_due()
    await sandbox.advance(minutes=2)
    await sandbox.run_due()
    assert await run.result(1) == "<its str() raised ValueError>"
    assert shop.ran == ["odd", "odd"]


async def test_a_step_may_ask_for_the_time_of_its_next_try(sandbox: Sandbox, shop: Shop) -> None:
    async def busy() -> str:
        shop.note("asked")
        if len(shop.ran) == 1:
            raise Retry.after(3600)
        return "done"

    @sandbox.app.durable
    async def order(ctx: DurableContext) -> str:
        return await ctx.options(retry=Retry(max_attempts=2, base=0)).step(busy)

    run = await order.start()
    await sandbox.advance(minutes=59)
    await sandbox.run_due()
    assert shop.ran == ["asked"]
    await sandbox.advance(minutes=61)
    await sandbox.run_due()
    assert await run.result(1) == "done"


async def test_a_call_has_the_name_that_it_is_given(sandbox: Sandbox, shop: Shop) -> None:
    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        await ctx.options(name="first").call(shop.ship, "a")

    run = await order.start()
    await sandbox.run_due()
    assert [each.name for each in await sandbox.app.runs.history(run.id)] == ["first"]


# -- what a function raises and asks for


async def test_a_function_that_finds_a_database_away_fails_by_its_own_policy(
    sandbox: Sandbox, shop: Shop
) -> None:
    """Given back as if the run's own database were away, it would be run again for ever."""

    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        shop.note("tried")
        raise StoreUnavailable("the warehouse's database is away")

    run = await order.start()
    assert await state(sandbox, run) == "failed"
    assert shop.ran == ["tried"]


@pytest.mark.parametrize("waits", ["sleep", "timeout"])
async def test_no_wait_is_longer_than_a_hundred_years(
    sandbox: Sandbox, shop: Shop, waits: str
) -> None:
    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        if waits == "sleep":
            await ctx.sleep(1e300)
        else:
            await ctx.wait("approved", timeout=1e300)

    run = await order.start()
    assert await state(sandbox, run) == "failed"
    assert f"{waits} must be at most 100 years" in str((await run.status()).error)


async def test_a_step_that_is_done_again_gets_the_time_that_it_got_before(
    sandbox: Sandbox, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A payment's key may be made of it."""

    async def pay(key: str) -> None:
        shop.note(key)
        if len(shop.ran) == 1:
            raise Interrupted("the worker goes down after the effect, before its record")

    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        await ctx.step(pay, str(ctx.now()))

    await order.start()
    await sandbox.run_due()
    await sandbox.advance(hours=1)
    await sandbox.run_due()
    assert len(shop.ran) == 2
    assert len(set(shop.ran)) == 1


async def test_random_numbers_are_the_same_when_a_run_is_resumed_and_others_when_it_begins_anew(
    sandbox: Sandbox, shop: Shop
) -> None:
    """A key of a payment that was made before the failure must be the key of its second try."""
    seen: list[tuple[int, str, float]] = []

    @sandbox.app.durable
    async def order(ctx: DurableContext, lap: int = 1) -> None:
        seen.append((lap, str(ctx.uuid()), ctx.random()))
        await ctx.step(shop.note, f"pay {seen[-1][1]}")
        await ctx.step(shop.note, "mail")
        if lap == 1:
            await ctx.restart(lap=2)

    shop.broken.add("mail")
    run = await order.start()
    assert await state(sandbox, run) == "failed"
    shop.broken.clear()
    await run.resume()
    assert await state(sandbox, run) == "succeeded"
    assert [lap for lap, _, _ in seen] == [1, 1, 2]
    assert seen[0] == seen[1]
    assert seen[1][1:] != seen[2][1:]
    assert (await run.status()).restarts == 1
    assert shop.ran.count(f"pay {seen[0][1]}") == 1
