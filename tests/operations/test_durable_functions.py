"""Durable functions: what they have done is not done again, whatever happens in between."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any

import pytest

from rota import App, Retry
from rota.durable.check import check_replay, history_of
from rota.durable.context import DurableContext
from rota.durable.sync import SyncDurableContext
from rota.errors import (
    CallFailed,
    ConfigError,
    Conflict,
    InvalidArguments,
    PayloadTooLarge,
    RunCancelled,
    StepFailed,
    WaitTimedOut,
)
from rota.model import Run
from rota.run_handle import RunFailed, RunHandle
from rota.store.durable_functions import DurableFunctionStore
from rota.testing import Sandbox
from tests.support.durable_shop import Shop

DAY = 86_400


@pytest.fixture
def shop(sandbox: Sandbox) -> Shop:
    return Shop(sandbox.app)


async def ended(sandbox: Sandbox, run: RunHandle) -> Run:
    await sandbox.run_due()
    return await run.status()


async def names(sandbox: Sandbox, run: RunHandle) -> list[tuple[str, str]]:
    return [(each.name, each.state) for each in await sandbox.app.runs.history(run.id)]


async def test_an_order_is_charged_once_sleeps_waits_and_ships_in_parallel(
    sandbox: Sandbox, shop: Shop
) -> None:
    @sandbox.app.durable
    async def order(ctx: DurableContext, id: str) -> dict[str, Any]:
        paid = await ctx.step(shop.charge, id)
        await ctx.sleep("1 day")
        approval = await ctx.wait("approved", key=id, timeout="3d")
        shipped = await ctx.gather(*(ctx.call(shop.ship, part) for part in paid["parts"]))
        return {"approved": approval, "shipped": shipped}

    run = await order.start("o-1")
    await sandbox.run_due()
    assert shop.ran == ["charge o-1"]
    await sandbox.advance(seconds=DAY - 1)
    await sandbox.run_due()
    assert (await sandbox.app.runs.history(run.id))[-1].name == "sleep"
    await sandbox.advance(seconds=2)
    await sandbox.run_due()
    assert (await sandbox.app.runs.history(run.id))[-1].signal == "approved"
    sent = await sandbox.app.send("approved", key="o-1", payload={"by": "ada"})
    assert sent.run_id == run.id
    await sandbox.run_due()
    assert await run.result(1) == {
        "approved": {"by": "ada"}, "shipped": ["a shipped", "b shipped"]
    }  # fmt: skip
    assert shop.ran == ["charge o-1", "ship a", "ship b"]


async def test_a_step_is_tried_again_by_its_tasks_policy_and_then_raises(
    sandbox: Sandbox, shop: Shop
) -> None:
    shop.broken.add("charge o-1")

    @sandbox.app.durable
    async def order(ctx: DurableContext, id: str) -> str:
        try:
            await ctx.step(shop.charge, id)
        except StepFailed as error:
            return f"{error.failure.type}: {error.failure.message}"
        return "paid"

    run = await order.start("o-1")
    await sandbox.run_due()
    assert shop.ran == ["charge o-1"]
    for _ in range(2):
        await sandbox.advance(seconds=100)
        await sandbox.run_due()
    assert await run.result(1) == "ValueError: charge o-1 is broken"
    assert shop.ran == ["charge o-1"] * 3
    [entry] = await sandbox.app.runs.history(run.id)
    assert (entry.state, entry.attempt) == ("failed", 3)


async def test_a_function_that_fails_goes_on_where_it_failed_when_it_is_resumed(
    sandbox: Sandbox, shop: Shop
) -> None:
    @sandbox.app.durable
    async def order(ctx: DurableContext) -> str:
        await ctx.step(shop.note, "one")
        await ctx.step(shop.note, "two")
        await ctx.step(shop.note, "three")
        return "done"

    shop.broken.add("two")
    run = await order.start()
    failed = await ended(sandbox, run)
    assert failed.state == "failed"
    assert "two is broken" in str(failed.error)
    with pytest.raises(RunFailed, match="failed"):
        await run.result(1)
    shop.broken.clear()
    await run.resume()
    assert (await ended(sandbox, run)).state == "succeeded"
    assert shop.ran == ["one", "two", "two", "three"]


async def test_a_run_that_has_ended_goes_back_to_a_step_when_that_is_retried(
    sandbox: Sandbox, shop: Shop
) -> None:
    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        for name in ("one", "two", "three"):
            await ctx.options(name=name).step(shop.note, name)

    run = await order.start()
    await sandbox.run_due()
    await run.retry("two")
    assert (await ended(sandbox, run)).state == "succeeded"
    assert shop.ran == ["one", "two", "three", "two", "three"]
    await run.retry("order")
    await sandbox.run_due()
    assert shop.ran[5:] == ["one", "two", "three"]


async def test_signals_sent_before_are_kept_and_each_is_taken_once(
    sandbox: Sandbox, shop: Shop
) -> None:
    @sandbox.app.durable
    async def collect(ctx: DurableContext, box: str, many: int) -> list[Any]:
        return [await ctx.wait("mail", key=box) for _ in range(many)]

    send = sandbox.app.send
    first = await send("mail", key="in", payload=1, once="a")
    again = await send("mail", key="in", payload=1, once="a")
    assert (again.existed, again.id) == (True, first.id)
    await send("mail", key="in", payload=2)
    await send("mail", key="out", payload=9)
    one = await collect.start("in", 2)
    other = await collect.start("in", 1)
    await sandbox.run_due()
    sent = await send("mail", key="in", payload=3)
    assert sent.run_id == other.id
    await sandbox.run_due()
    assert await one.result(1) == [1, 2]
    assert await other.result(1) == [3]
    waiting = [each for each in await sandbox.app.signals.list() if each.taken_at is None]
    assert [(each.key, each.payload) for each in waiting] == [("out", 9)]


async def test_a_wait_times_out_and_a_later_signal_is_kept_for_the_next(
    sandbox: Sandbox, shop: Shop
) -> None:
    @sandbox.app.durable
    async def patient(ctx: DurableContext) -> Any:
        try:
            await ctx.wait("go", timeout="1h")
        except WaitTimedOut:
            return await ctx.wait("go")

    run = await patient.start()
    await sandbox.run_due()
    await sandbox.advance(seconds=3601)
    sent = await run.send("go", "late")
    await sandbox.run_due()
    assert await run.result(1) == "late"
    assert [each.state for each in await sandbox.app.runs.history(run.id)] == [
        "failed", "succeeded"
    ]  # fmt: skip
    with pytest.raises(Conflict, match="no function would receive the signal 'go'"):
        await run.send("go")
    assert sent.run_id is None


async def test_calls_of_runs_pass_results_and_failures_and_cancels_cascade(
    sandbox: Sandbox, shop: Shop
) -> None:
    app = sandbox.app
    flow = app.workflow("flow")
    flow.step(shop.ship, "x")

    @app.durable
    async def child(ctx: DurableContext, word: str) -> str:
        if word == "bad":
            raise ValueError("bad word")
        if word == "wait":
            await ctx.wait("never")
        return word.upper()

    @app.durable
    async def parent(ctx: DurableContext) -> list[Any]:
        results = [await ctx.call(flow), await ctx.call(child, "word")]
        try:
            await ctx.call(child, "bad")
        except CallFailed as error:
            results.append(error.failure.type)
        return results

    run = await parent.start()
    await sandbox.run_due()
    assert await run.result(1) == ["x shipped", "WORD", "StepFailed"]

    @app.durable
    async def waiter(ctx: DurableContext) -> None:
        await ctx.call(child, "wait")

    run = await waiter.start()
    await sandbox.run_due()
    await run.cancel()
    await sandbox.run_due()
    assert (await run.status()).state == "cancelled"
    [child_run] = [
        each for each in await app.runs.list(workflow="child") if each.parent_id == run.id
    ]
    assert child_run.state == "cancelled"


async def test_a_cancelled_function_is_told_once_and_may_clean_up(
    sandbox: Sandbox, shop: Shop
) -> None:
    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        await ctx.step(shop.note, "charge")
        try:
            await ctx.wait("approved")
        except RunCancelled:
            await ctx.step(shop.note, "refund")
            await ctx.call(shop.ship, "letter")
            raise

    run = await order.start()
    await sandbox.run_due()
    await run.cancel()
    await sandbox.run_due()
    assert (await run.status()).state == "cancelled"
    assert shop.ran == ["charge", "refund", "ship letter"]
    assert ("approved", "cancelled") in await names(sandbox, run)


async def test_a_call_that_a_cancel_prevented_is_not_among_those_to_stop(
    sandbox: Sandbox, shop: Shop
) -> None:
    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        await ctx.gather(ctx.call(shop.ship, "a"), ctx.call(shop.ship, "b"))

    run = await order.start()
    await run.cancel()
    assert (await ended(sandbox, run)).state == "cancelled"
    assert "cancelled" in {state for _, state in await names(sandbox, run)}
    functions = DurableFunctionStore((await sandbox.app.store()).database)
    assert all(row["job_id"] for row in await functions.cancelled_calls(run.id))


async def test_a_function_that_ignores_its_cancel_is_stopped_by_the_second(
    sandbox: Sandbox, shop: Shop
) -> None:
    @sandbox.app.durable
    async def stubborn(ctx: DurableContext) -> None:
        while True:
            try:
                await ctx.wait("never")
            except RunCancelled:
                shop.note("no")

    run = await stubborn.start()
    await sandbox.run_due()
    await run.cancel()
    await sandbox.run_due()
    assert (await run.status()).state == "running"
    await run.cancel()
    await sandbox.run_due()
    assert (await run.status()).state == "cancelled"
    assert shop.ran == ["no"]


async def test_a_deadline_tells_the_function_and_fails_the_run(
    sandbox: Sandbox, shop: Shop
) -> None:
    @sandbox.app.durable(deadline="2h")
    async def slow(ctx: DurableContext) -> None:
        try:
            await ctx.sleep("1 week")
        finally:
            await ctx.step(shop.note, "cleaned")

    run = await slow.start()
    await sandbox.run_due()
    await sandbox.advance(seconds=7201)
    await sandbox.run_due()
    status = await run.status()
    assert (status.state, status.error["type"]) == ("failed", "DeadlineExceeded")
    assert shop.ran == ["cleaned"]


async def test_a_race_has_the_same_winner_at_every_replay(sandbox: Sandbox, shop: Shop) -> None:
    @sandbox.app.durable
    async def either(ctx: DurableContext) -> list[Any]:
        async def branch() -> str:
            await ctx.step(shop.note, "inner")
            return str(await ctx.wait("never"))

        first = await ctx.race(ctx.wait("go"), ctx.sleep("1 day"), branch())
        await ctx.sleep("1 day")
        second = await ctx.race(ctx.call(shop.ship, "late"), ctx.step(shop.note, "now"))
        return [first, second]

    run = await either.start()
    await sandbox.run_due()
    await run.send("go", "went")
    await sandbox.run_due()
    await sandbox.advance(seconds=2 * DAY)
    await sandbox.run_due()
    assert await run.result(1) == [[0, "went"], [1, None]]
    assert shop.ran.count("inner") == 1


async def test_branches_keep_their_own_places(sandbox: Sandbox, shop: Shop) -> None:
    """The same names in branches that end in another order than they began."""

    @sandbox.app.durable
    async def fan(ctx: DurableContext) -> list[Any]:
        async def one(word: str, seconds: float) -> str:
            await ctx.sleep(seconds)
            await ctx.step(shop.note, word)
            await ctx.sleep(5)
            return f"{word} {await ctx.step(echo, word)}"

        return await ctx.gather(one("a", 30), one("b", 20), one("c", 10))

    async def echo(word: str) -> str:
        return word

    run = await fan.start()
    for _ in range(10):
        await sandbox.run_due()
        await sandbox.advance(seconds=5)
    await sandbox.run_due()
    assert await run.result(1) == ["a a", "b b", "c c"]
    assert shop.ran == ["c", "b", "a"]


async def test_times_random_numbers_and_patches_are_alike_at_every_replay(
    sandbox: Sandbox, shop: Shop
) -> None:
    seen: list[Any] = []

    @sandbox.app.durable(version=3)
    async def same(ctx: DurableContext) -> None:
        seen.append((ctx.now(), ctx.random(), ctx.uuid(), ctx.patched("new"), ctx.version))
        await ctx.sleep("1h")
        seen.append(ctx.now())

    run = await same.start()
    await sandbox.run_due()
    await sandbox.advance(seconds=3601)
    assert (await ended(sandbox, run)).state == "succeeded"
    assert seen[0] == seen[1]
    assert seen[0][3:] == (True, 3)
    assert 0 <= seen[0][1] < 1
    assert (seen[2] - seen[0][0]).total_seconds() > 3600


async def test_changed_code_is_parked_with_what_differs_and_goes_on_when_mended(
    sandbox: Sandbox, shop: Shop
) -> None:
    code = {"first": "charge"}

    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        await ctx.options(name=code["first"]).step(shop.note, code["first"])
        await ctx.wait("go")

    run = await order.start()
    await sandbox.run_due()
    code["first"] = "bill"
    await run.send("go")
    await sandbox.run_due()
    status = await run.status()
    assert status.state == "running"
    assert status.paused_at is not None
    assert (
        "the code asks for a step 'bill' where the history has step 'charge' (number 1)"
        in status.problem["message"]
    )
    code["first"] = "charge"
    await run.resume()
    assert (await ended(sandbox, run)).state == "succeeded"
    assert shop.ran == ["charge"]


async def test_other_arguments_than_in_the_history_are_a_contradiction(
    sandbox: Sandbox, shop: Shop
) -> None:
    word = ["one"]

    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        await ctx.step(shop.note, word[0])
        await ctx.sleep("1h")

    run = await order.start()
    await sandbox.run_due()
    word[0] = "two"
    await sandbox.advance(seconds=3601)
    await sandbox.run_due()
    problem = (await run.status()).problem["message"]
    assert "step 'note' (number 1) was recorded with other arguments" in problem
    assert shop.ran == ["one"]


async def test_a_patch_leaves_runs_alone_that_were_past_it(sandbox: Sandbox, shop: Shop) -> None:
    patched = [False]

    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        if patched[0] and ctx.patched("greet-first"):
            await ctx.step(shop.note, "greet")
        await ctx.step(shop.note, "charge")
        await ctx.wait("go")

    old = await order.start()
    await sandbox.run_due()
    patched[0] = True
    new = await order.start()
    await sandbox.run_due()
    for run in (old, new):
        await run.send("go")
    await sandbox.run_due()
    assert (await old.status()).state == (await new.status()).state == "succeeded"
    assert shop.ran == ["charge", "greet", "charge"]


async def test_an_endless_function_begins_anew_without_its_history(
    sandbox: Sandbox, shop: Shop
) -> None:
    @sandbox.app.durable
    async def monthly(ctx: DurableContext, month: int = 1) -> str:
        await ctx.step(shop.note, f"month {month}")
        if month == 3:
            return "over"
        await ctx.sleep("30d")
        return await ctx.restart(month=month + 1)

    run = await monthly.start()
    for _ in range(3):
        await sandbox.run_due()
        await sandbox.advance(seconds=30 * DAY + 1)
    await sandbox.run_due()
    assert await run.result(1) == "over"
    assert shop.ran == ["month 1", "month 2", "month 3"]
    assert len(await sandbox.app.runs.history(run.id)) == 1


async def test_a_paused_run_waits_and_goes_on(sandbox: Sandbox, shop: Shop) -> None:
    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        await ctx.wait("go")
        await ctx.step(shop.note, "went")

    run = await order.start()
    await sandbox.run_due()
    await run.pause()
    await run.send("go")
    await sandbox.run_due()
    assert shop.ran == []
    await run.resume()
    await sandbox.run_due()
    assert shop.ran == ["went"]


async def test_a_plain_function_is_durable_too(sandbox: Sandbox, shop: Shop) -> None:
    @sandbox.app.durable
    def order(ctx: SyncDurableContext, id: str) -> list[Any]:
        first = ctx.step(shop.note, f"one {id}")
        ctx.sleep("1h")
        later = ctx.later
        shipped = ctx.gather(later.call(shop.ship, "a"), later.call(shop.ship, "b"))
        try:
            ctx.wait("never", timeout="1h")
        except WaitTimedOut:
            shop.note("timed out")
        return [first, *shipped]

    run = await order.start("x")
    for _ in range(4):
        await sandbox.run_due()
        await sandbox.advance(seconds=3601)
    await sandbox.run_due()
    assert await run.result(1) == [None, "a shipped", "b shipped"]
    assert shop.ran == ["one x", "ship a", "ship b", "timed out"]


async def test_a_status_is_shown_while_the_function_waits(sandbox: Sandbox, shop: Shop) -> None:
    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        await ctx.set_status({"waits": "for approval"})
        await ctx.wait("approved")

    run = await order.start()
    await sandbox.run_due()
    assert (await run.status()).status == {"waits": "for approval"}


async def test_a_key_names_one_run_and_a_bad_use_is_explained(sandbox: Sandbox, shop: Shop) -> None:
    @sandbox.app.durable
    async def order(ctx: DurableContext, id: str) -> None: ...

    bound = order.start_options(key="k")
    one, two = await bound.start("a"), await bound.start("a")
    assert (one.id, two.existed) == (two.id, True)
    with pytest.raises(ConfigError, match="is a durable function: start a run of it"):
        await order.submit("a")
    with pytest.raises(InvalidArguments, match="missing"):
        await order.start()  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="takes no context"):
        sandbox.app.durable(shop.note)

    @sandbox.app.durable
    async def odd(ctx: DurableContext) -> None:
        await ctx.call(shop.note, "x")  # type: ignore[call-overload]

    run = await odd.start()
    status = await ended(sandbox, run)
    assert "to run a function of this process use ctx.step" in str(status.error)


def test_functions_of_another_kind_are_refused_when_they_are_declared(app: App) -> None:
    def lazy(ctx: SyncDurableContext):
        yield 1

    async def stream(ctx: DurableContext):
        yield 1

    def plain(ctx: DurableContext) -> None: ...

    async def awaits(ctx: SyncDurableContext) -> None: ...

    for function in (lazy, stream):
        with pytest.raises(ConfigError, match="is a generator: nothing would ever run it"):
            app.durable(function)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="'plain' is a plain function, whose context is a Sync"):
        app.durable(plain)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="'awaits' is a coroutine, whose context is a DurableC"):
        app.durable(awaits)  # type: ignore[arg-type]


async def test_refusals_of_signals_name_the_signal_and_quote_no_page(sandbox: Sandbox) -> None:
    with pytest.raises(PayloadTooLarge, match=r"^signal 'go': its content has 2,000,"):
        await sandbox.app.send("go", key="k", payload="x" * 2_000_000)
    with pytest.raises(InvalidArguments, match="key must be a text of 1 to 255") as refused:
        await sandbox.app.send("go", key="k" * 5_000)
    with pytest.raises(ConfigError, match="is not a usable name") as misnamed:
        await sandbox.app.send("g" * 5_000, key="k")
    assert max(len(str(refused.value)), len(str(misnamed.value))) < 400


async def test_a_result_that_is_too_large_fails_the_step_for_good(
    sandbox: Sandbox, shop: Shop
) -> None:
    async def much() -> str:
        shop.note("much")
        return "x" * 2_000_000

    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        await ctx.options(retry=Retry(max_attempts=5, base=0)).step(much)

    run = await order.start()
    status = await ended(sandbox, run)
    assert "2,000,002 bytes, over max_result_bytes" in str(status.error)
    assert shop.ran == ["much"]


async def test_a_signal_in_a_transaction_is_sent_if_that_commits(
    sandbox: Sandbox, shop: Shop
) -> None:
    @sandbox.app.durable
    async def order(ctx: DurableContext) -> Any:
        return await ctx.wait("go", key="k")

    run = await order.start()
    await sandbox.run_due()
    database = (await sandbox.app.store()).database
    async with database.connection() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await sandbox.app.send("go", key="k", payload=1, connection=connection)
        await transaction.rollback()
        await sandbox.run_due()
        assert (await run.status()).state == "running"
        async with connection.transaction():
            await sandbox.app.send("go", key="k", payload=2, connection=connection)
    await sandbox.run_due()
    assert await run.result(1) == 2


async def test_histories_are_checked_with_new_code_without_doing_anything(
    sandbox: Sandbox, shop: Shop
) -> None:
    code = ["one"]

    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        await ctx.gather(ctx.step(shop.note, "a"), ctx.step(shop.note, "b"))
        await ctx.options(name=code[0]).step(shop.note, code[0])
        await ctx.wait("go")
        await ctx.step(shop.note, "never yet")

    run = await order.start()
    await sandbox.run_due()

    async def problem() -> str | None:
        history = history_of(await run.status(), await sandbox.app.runs.history(run.id))
        return await check_replay(order, {}, history)

    assert await problem() is None
    code[0] = "two"
    assert "the code asks for a step 'two' where the history has step 'one'" in str(await problem())
    assert sorted(shop.ran) == ["a", "b", "one"]


async def test_the_history_says_how_long_a_step_took_and_that_a_last_sleep_has_ended(
    sandbox: Sandbox, shop: Shop
) -> None:
    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        began.append(monotonic())
        await ctx.step(asyncio.sleep, 0.05)
        began.append(monotonic())
        await ctx.sleep(0.01)

    began: list[float] = []
    run = await order.start()
    await sandbox.run_due()
    step, sleep = await sandbox.app.runs.history(run.id)
    assert step.ended_at is not None
    assert 0.05 <= (step.ended_at - step.created_at).total_seconds() <= began[1] - began[0]
    assert (sleep.state, sleep.ended_at is not None) == ("succeeded", True)


async def test_a_call_keeps_the_headers_that_it_is_given(sandbox: Sandbox, shop: Shop) -> None:
    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        await ctx.call(shop.ship.options(headers={"shelf": "7"}), "a")

    await order.start()
    await sandbox.run_due()
    [job] = await sandbox.app.jobs.list(task="ship")
    assert (job.headers, job.state) == ({"shelf": "7"}, "succeeded")
