"""Races of durable functions: what loses is let go, and takes nothing along."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proof.waiting import eventually
from rota import App, Retry
from rota.durable.context import DurableContext
from rota.errors import CallFailed, LeaseLost, RunCancelled
from rota.node import Node
from rota.operations.run_advance import RunAdvance
from rota.run_handle import RunHandle
from rota.store.durable_functions import DurableFunctionStore
from rota.testing import Sandbox


class Shop:
    def __init__(self, app: App) -> None:
        self.ran: list[str] = []

        @app.task(retry=Retry(max_attempts=1))
        async def ship(part: str) -> str:
            self.ran.append(f"ship {part}")
            return part

        @app.task(retry=Retry(max_attempts=1))
        async def fail(text: str) -> None:
            raise ValueError(text)

        self.ship, self.fail = ship, fail

    async def note(self, text: str) -> str:
        self.ran.append(text)
        return text


@pytest.fixture
def shop(sandbox: Sandbox) -> Shop:
    return Shop(sandbox.app)


async def untaken(app: App) -> list[Any]:
    return [each.payload for each in await app.signals.list() if each.taken_at is None]


async def job_states(app: App, run: RunHandle) -> list[str]:
    calls = [each for each in await app.runs.history(run.id) if each.kind == "call"]
    return [(await app.jobs.get(each.job_id)).state for each in calls if each.job_id]


async def test_a_signal_that_comes_to_a_loser_is_kept_for_the_next_wait(
    sandbox: Sandbox, shop: Shop
) -> None:
    app = sandbox.app

    @app.durable
    async def order(ctx: DurableContext) -> list[Any]:
        first = await ctx.race(ctx.wait("a"), ctx.wait("b"))
        return [*first, await ctx.wait("b")]

    run = await order.start()
    await run.send("a", 1)
    await run.send("b", 2)
    await sandbox.run_due()
    assert await run.result(1) == [0, 1, 2]
    assert await untaken(app) == []


async def test_a_signal_that_comes_with_the_end_of_a_sleep_is_kept(
    sandbox: Sandbox, shop: Shop
) -> None:
    app = sandbox.app

    @app.durable
    async def order(ctx: DurableContext) -> list[Any]:
        first = await ctx.race(ctx.sleep(60), ctx.wait("b"), ctx.wait("c", key="box"))
        return [*first, await ctx.wait("b")]

    @app.durable
    async def other(ctx: DurableContext) -> Any:
        return await ctx.wait("c", key="box")

    run = await order.start()
    await sandbox.run_due()
    second = await other.start()
    await sandbox.run_due()
    await run.pause()
    await run.send("b", 2)
    await app.send("c", key="box", payload=3)
    await sandbox.advance(seconds=61)
    await run.resume()
    await sandbox.run_due()
    assert await run.result(1) == [0, None, 2]
    assert await second.result(1) == 3  # given back, and offered to who waits


async def test_a_signal_that_a_branch_has_used_is_not_given_back(
    sandbox: Sandbox, shop: Shop
) -> None:
    app = sandbox.app

    @app.durable
    async def order(ctx: DurableContext) -> Any:
        async def used() -> None:
            await ctx.step(shop.note, await ctx.wait("pay"))
            await ctx.wait("never")

        return await ctx.race(ctx.wait("go"), used())

    run = await order.start()
    await run.send("pay", "paid")
    await sandbox.run_due()
    await run.send("go")
    await sandbox.run_due()
    assert await run.result(1) == [0, None]
    assert await untaken(app) == []
    assert shop.ran == ["paid"]


async def test_a_worker_that_goes_away_while_a_race_ends_leaves_no_loser_behind(
    sandbox: Sandbox, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The winner is noted, and the losers are not asked to stop yet."""
    app = sandbox.app
    stop, gone = RunAdvance.stop_called, [True]

    async def stop_called(self: RunAdvance, namespace: str, rows: Any) -> None:
        if gone:
            gone.clear()
            raise LeaseLost("the worker is gone")
        await stop(self, namespace, rows)

    monkeypatch.setattr(RunAdvance, "stop_called", stop_called)

    @app.durable
    async def order(ctx: DurableContext) -> Any:
        return await ctx.race(ctx.wait("go"), ctx.call(shop.ship.options(delay=3600), "a"))

    run = await order.start()
    await sandbox.run_due()
    await run.send("go", 1)
    await sandbox.run_due()
    assert await run.result(1) == [0, 1]
    assert await job_states(app, run) == ["cancelled"]
    assert gone == []


async def test_a_call_that_is_being_made_while_it_loses_is_stopped(
    sandbox: Sandbox, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = sandbox.app
    noted, later = asyncio.Event(), list[asyncio.Task[None]]()
    call_jobs = DurableFunctionStore.call_jobs
    record = DurableFunctionStore.record_checkpoints

    async def slow_calls(self: DurableFunctionStore, *args: Any) -> Any:
        await noted.wait()
        return await call_jobs(self, *args)

    async def recorded(self: DurableFunctionStore, *args: Any) -> Any:
        written = await record(self, *args)
        later.append(asyncio.create_task(soon()))
        return written

    async def soon() -> None:
        for _ in range(50):  # turns of the loop, in which the race ends
            await asyncio.sleep(0)
        noted.set()

    monkeypatch.setattr(DurableFunctionStore, "call_jobs", slow_calls)
    monkeypatch.setattr(DurableFunctionStore, "record_checkpoints", recorded)

    @app.durable
    async def order(ctx: DurableContext) -> Any:
        return await ctx.race(
            ctx.step(shop.note, "quick"), ctx.call(shop.ship.options(delay=3600), "a")
        )

    run = await order.start()
    await sandbox.run_due()
    assert await run.result(1) == [0, "quick"]
    assert await job_states(app, run) == ["cancelled"]


async def test_losers_that_are_left_go_on_and_a_winner_that_raises_raises(
    sandbox: Sandbox, shop: Shop
) -> None:
    app = sandbox.app

    @app.durable
    async def order(ctx: DurableContext) -> list[Any]:
        async def inner() -> Any:
            return await ctx.gather(
                ctx.call(shop.ship, "in"), ctx.race(ctx.wait("never"), ctx.sleep(10))
            )

        try:
            await ctx.race(
                ctx.call(shop.fail, "no"), ctx.call(shop.ship.options(delay=5), "left"),
                losers="leave",
            )  # fmt: skip
        except CallFailed as error:
            failed = error.failure.message
        results = await ctx.gather(
            ctx.race(ctx.wait("never"), inner()), ctx.step(shop.note, "x"),
            ctx.call(shop.fail, "y"), return_exceptions=True,
        )  # fmt: skip
        return [failed, *results[:2], str(results[2])]

    run = await order.start()
    for _ in range(3):
        await sandbox.run_due()
        await sandbox.advance(seconds=11)
    await sandbox.run_due()
    failed, raced, step, error = await run.result(1)
    assert (failed, raced, step) == ("no", [1, ["in", [1, None]]], "x")
    assert "y" in error
    assert sorted(shop.ran) == ["ship in", "ship left", "x"]


# -- leaving


async def test_a_contradiction_in_a_branch_parks_the_run_while_another_waits(
    sandbox: Sandbox, shop: Shop
) -> None:
    """And nothing that would clean up is done, for the function is not the one that began."""
    app = sandbox.app
    words = ["old"]

    @app.durable
    async def order(ctx: DurableContext) -> Any:
        async def says() -> Any:
            try:
                await ctx.step(shop.note, words[0])
                return await ctx.wait("b")
            finally:
                await ctx.step(shop.note, "clean up")

        return await ctx.gather(ctx.wait("a"), says())

    run = await order.start()
    await sandbox.run_due()
    words[0] = "new"
    await run.send("b", 2)
    await sandbox.run_due()
    status = await run.status()
    assert status.problem is not None
    assert "other arguments" in status.problem["message"]
    assert shop.ran == ["old"]
    words[0] = "old"
    await run.resume()
    await run.send("a", 1)
    await sandbox.run_due()
    assert await run.result(1) == [1, 2]
    assert shop.ran == ["old", "clean up"]


async def test_a_branch_that_loses_its_job_does_not_leave_the_others_waiting(app: App) -> None:
    left: list[str] = []

    async with app:
        database = (await app.store()).database

        async def steal() -> None:
            async with database.connection() as connection:
                await connection.execute(
                    f"update {app.settings.schema}.present set token = token + 1"
                )

        @app.durable
        async def order(ctx: DurableContext) -> None:
            async def waits() -> None:
                try:
                    await ctx.wait("never")
                finally:
                    left.append("wait")

            try:
                await ctx.gather(waits(), ctx.step(steal))
            finally:
                left.append("function")

        await order.start()
        async with Node(app).running():
            await eventually(lambda: len(left) == 2, what="the function is left")
    assert left == ["wait", "function"]


class LateRecords:
    """Records are written when a race has had time to end: once a signal was taken, or `at_once`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, at_once: bool) -> None:
        self.on, self._at_once, self._taken = False, at_once, asyncio.Event()
        self._later: list[asyncio.Task[None]] = []
        self._record = DurableFunctionStore.record_checkpoints
        self._wait = DurableFunctionStore.wait_for_signal
        late = self

        async def record(self: DurableFunctionStore, *args: Any) -> Any:
            if late.on:
                await (late._soon() if late._at_once else late._taken.wait())
            return await late._record(self, *args)

        async def wait(self: DurableFunctionStore, *args: Any, **named: Any) -> Any:
            found = await late._wait(self, *args, **named)
            late._later.append(asyncio.create_task(late._soon()))
            return found

        monkeypatch.setattr(DurableFunctionStore, "record_checkpoints", record)
        monkeypatch.setattr(DurableFunctionStore, "wait_for_signal", wait)

    async def _soon(self) -> None:
        for _ in range(50):  # turns of the loop, in which the race ends
            await asyncio.sleep(0)
        self._taken.set()


@pytest.mark.parametrize("begun", [False, True])
async def test_a_cancel_that_a_loser_was_being_told_of_as_it_lost_is_told_again(
    sandbox: Sandbox, shop: Shop, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    """What it is told is still being recorded when another branch has won: in place of something new, or
    of another try of a step that was begun before."""
    records = LateRecords(monkeypatch, at_once=begun)

    async def fail() -> None:
        raise ValueError("not now")

    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        async def first() -> Any:
            if begun:
                return await ctx.options(retry=Retry(max_attempts=9, base=3600)).step(fail)
            return await ctx.sleep(60)

        async def second() -> Any:
            return await ctx.wait("go")

        await ctx.race(first(), second())
        try:
            await ctx.step(shop.note, "charge")
        except RunCancelled:
            await ctx.options(name="refund").step(shop.note, "refund")
            raise

    run = await order.start()
    if begun:
        await sandbox.run_due()
    records.on = True
    await run.send("go", 1)
    await run.cancel()
    await sandbox.run_due()
    assert (await run.status()).state == "cancelled"
    assert shop.ran == ["refund"]
