"""Durable functions while statements fail: lost answers, lost leases, values that can't be stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from proof.waiting import eventually
from rota import App, Retry
from rota.durable.context import DurableContext
from rota.lib import failpoints
from rota.node import Node
from rota.run_handle import RunHandle

STATEMENTS = (
    "open_functions", "record_checkpoints", "call_jobs", "call_run", "wait_for_signal",
    "suspend_function", "restart_function", "close_waits", "set_run_status",
)  # fmt: skip


class Shop:
    def __init__(self, app: App) -> None:
        self.ran: Counter[str] = Counter()

        @app.task(retry=Retry(max_attempts=1))
        async def ship(part: str) -> str:
            self.ran[part] += 1
            return part

        @app.durable
        async def child(ctx: DurableContext) -> str:
            await ctx.step(self.note, "child")
            return "child"

        @app.durable
        async def order(ctx: DurableContext, lap: int = 1) -> list[Any]:
            await ctx.set_status({"lap": lap})
            await ctx.step(self.note, f"step {lap}")
            if lap == 1:
                return await ctx.restart(lap=2)
            parts = await ctx.gather(ctx.call(ship, "a"), ctx.call(ship, "b"), ctx.call(child))
            winner, _ = await ctx.race(ctx.wait("never"), ctx.sleep(0.01))
            return [*parts, winner, await ctx.wait("go")]

        self.order = order

    async def note(self, text: str) -> None:
        self.ran[text] += 1


@pytest.fixture
def shop(app: App) -> Shop:
    return Shop(app)


@pytest.fixture
async def node(app: App, shop: Shop) -> AsyncIterator[Node]:
    node = Node(app)
    async with app, node.running():
        yield node


async def go(run: RunHandle) -> None:
    await run.send("go", "went")


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize("point", ["before", "after"])
@pytest.mark.parametrize("statement", STATEMENTS)
async def test_a_statement_without_an_answer_is_repeated_and_changes_nothing_twice(
    shop: Shop, statement: str, point: str
) -> None:
    with failpoints.armed_with(f"{statement}:{point}=error@1"):
        run = await shop.order.start()
        await go(run)
        assert await run.result(60) == ["a", "b", "child", 1, "went"]
    assert shop.ran == {"step 1": 1, "step 2": 1, "a": 1, "b": 1, "child": 1}


@pytest.mark.usefixtures("node")
async def test_a_signal_without_an_answer_is_sent_once(app: App, shop: Shop) -> None:
    run = await shop.order.start()
    with failpoints.armed_with("send_signal:after=error@1"):
        await go(run)
    assert (await run.result(60))[-1] == "went"
    assert len(await app.signals.list(key=str(run.id))) == 1


async def test_an_attempt_whose_lease_is_lost_records_nothing(app: App, shop: Shop) -> None:
    """Its job is taken away while it is inside a step: another attempt does the step and the rest."""
    async with app:
        database = (await app.store()).database
        taken: list[str] = []

        async def steal() -> None:
            taken.append("step")
            if len(taken) == 1:
                async with database.connection() as connection:
                    await connection.execute(
                        f"update {app.settings.schema}.present set token = token + 1"
                    )

        @app.durable
        async def robbed(ctx: DurableContext) -> str:
            await ctx.step(steal)
            return "done"

        run = await robbed.start()
        async with Node(app).running():
            await eventually(lambda: bool(taken), what="the step")
        assert await app.runs.history(run.id) == []


async def test_a_value_that_cannot_be_stored_fails_its_own_step_alone(app: App) -> None:
    @app.durable
    async def speak(ctx: DurableContext, text: str) -> Any:
        words = {"fine": "fine", "lone": "\ud800"}
        return await ctx.step(lambda: words[text])

    async with app, Node(app).running():
        runs = [await speak.start("fine") for _ in range(5)]
        wrong = await speak.start("lone")
        assert [await run.result(60) for run in runs] == ["fine"] * 5
        ended = await wrong.wait(60)
    assert ended.state == "failed"
    assert "surrogates not allowed" in str(ended.error)
