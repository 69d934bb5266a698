"""Durable functions that are resumed, retried and cancelled: what was dealt with is not done again."""

from __future__ import annotations

from typing import Any

import pytest

from rota import App, Retry
from rota.durable.context import DurableContext
from rota.errors import CallFailed, RunCancelled, StepFailed, WaitTimedOut
from rota.operations.run_advance import RunAdvance
from rota.store.workflows import WorkflowStore
from rota.testing import Sandbox
from rota.workflow import RunHandle


class Shop:
    """Functions that record what ran, and fail when told to."""

    def __init__(self, app: App) -> None:
        self.ran: list[str] = []
        self.broken: set[str] = set()

        @app.task(retry=Retry(max_attempts=1))
        async def ship(part: str) -> str:
            self.note(f"ship {part}")
            return part

        @app.task(retry=Retry(max_attempts=3, base=3600, jitter=0))
        async def charge(id: str) -> None:
            self.note(f"charge {id}")

        self.ship, self.charge = ship, charge

    def note(self, text: str) -> None:
        self.ran.append(text)
        if text in self.broken:
            raise ValueError(f"{text} is broken")


@pytest.fixture
def shop(sandbox: Sandbox) -> Shop:
    return Shop(sandbox.app)


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
    assert await run.result(1) == ["a", "b", "c"]


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
