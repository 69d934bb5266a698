"""Durable functions on a running node: what they record together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from proof.waiting import eventually
from rota import App, DurableContext
from rota.core.workflow.model import CheckpointKind, StepState
from rota.durable import wire
from rota.node import Node
from rota.runtime.attempts import to_work
from rota.scheduler.reaper import Reaper
from rota.store.durable_functions import DurableFunctionStore
from rota.store.work import UpkeepStore
from rota.testing import Sandbox
from rota.worker import functions
from tests.support.fake_node import FakeNode


async def test_functions_that_run_at_the_same_time_share_their_commits(
    make_app: Callable[..., App], monkeypatch: pytest.MonkeyPatch
) -> None:
    app, written = make_app(concurrency=20), []

    async def note(number: int) -> int:
        return number

    @app.durable
    async def steps(ctx: DurableContext, number: int) -> None:
        for at in range(30):
            await ctx.step(note, number + at)

    record = DurableFunctionStore.record_checkpoints

    async def counted(self: Any, node: Any, rows: Any, blamed: Any) -> Any:
        written.append(len(rows))
        return await record(self, node, rows, blamed)

    monkeypatch.setattr(DurableFunctionStore, "record_checkpoints", counted)
    runs = [await steps.start(number * 100) for number in range(20)]
    async with Node(app).running():
        for run in runs:
            assert (await run.wait(100)).state == "succeeded"
    assert sum(written) == 600
    # Two crowds that take turns would have ten in each statement, and never twenty.
    assert max(written) == 20


async def test_a_function_that_was_stopped_while_others_wrote_stops_no_other(
    make_app: Callable[..., App], monkeypatch: pytest.MonkeyPatch
) -> None:
    app, under_way, go_on = make_app(concurrency=20), asyncio.Event(), asyncio.Event()

    async def note(number: int) -> int:
        return number

    @app.durable
    async def steps(ctx: DurableContext, number: int) -> int:
        return await ctx.step(note, number)

    record = DurableFunctionStore.record_checkpoints

    async def slow(self: Any, node: Any, rows: Any, blamed: Any) -> Any:
        under_way.set()
        await go_on.wait()
        return await record(self, node, rows, blamed)

    monkeypatch.setattr(DurableFunctionStore, "record_checkpoints", slow)
    asked = _note_records(monkeypatch)
    async with Node(app).running():
        first = await steps.start(1)
        await asyncio.wait_for(under_way.wait(), 60)
        await steps.start(2)
        await eventually(lambda: len(asked) == 2, what="a record that waits for the first")
        asked[1].cancel()
        go_on.set()
        assert (await first.wait(60)).state == "succeeded"
        third = await steps.start(3)
        assert (await third.wait(60)).state == "succeeded"


@pytest.mark.parametrize("what", ["step", "call", "wait"])
async def test_a_crash_right_after_a_record_is_the_first_at_the_place_after_it(
    make_app: Callable[..., App], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The node goes down when the record is committed: nothing that comes after it is written."""
    app, committed = make_app(), asyncio.Event()

    @app.task
    async def note() -> None: ...

    @app.durable
    async def steps(ctx: DurableContext) -> None:
        match what:
            case "step":
                await ctx.step(note)
            case "call":
                await ctx.call(note)
            case _:
                await ctx.wait("go")

    async def never_answered(self: Any, write: Callable[[], Any]) -> Any:
        answer = await write()
        records = ("Functions._write_records", "Functions._write_calls", "Functions._wait")
        if write.__qualname__.startswith(records):
            committed.set()
            await asyncio.Event().wait()
        return answer

    monkeypatch.setattr(functions.Functions, "_persistently", never_answered)
    run = await steps.start()
    async with (await app.store()).database.connection() as connection:
        table = f"{app.settings.schema}.present"
        await connection.execute(f"update {table} set crashes = 2 where run_id = $1", run.id)
        async with Node(app).running():
            await asyncio.wait_for(committed.wait(), 60)
            crashes = f"select crashes from {table} where run_id = $1 and step = 0"
            assert await connection.fetchval(crashes, run.id) == 0


class Losing:
    """Nodes that take a function, record what they are told to, and go down."""

    def __init__(self, sandbox: Sandbox, hot: Any) -> None:
        self.sandbox, self.hot = sandbox, hot
        self.settings = sandbox.app.settings
        self.reaper = Reaper(UpkeepStore(hot), self.settings)

    async def lose(self, *records: str, number: int = 1) -> None:
        node = await FakeNode(self.hot, self.settings).register()
        row = await node.claim_one(tasks=["order"])
        work = to_work(row)
        await node.mark_started(row)
        for name in records:
            new = wire.NewCheckpoint(
                number=number, kind=CheckpointKind.STEP, state=StepState.SUCCEEDED, name=name
            )
            await functions.Functions(self.hot, node.lease).record(work, [new])
        await self.sandbox.advance(seconds=self.settings.lease_seconds + 0.001)
        await self.reaper.tick()


@pytest.fixture
def losing(sandbox: Sandbox, hot: Any) -> Losing:
    return Losing(sandbox, hot)


async def test_crashes_are_counted_at_one_place_and_the_run_of_a_poison_function_names_it(
    sandbox: Sandbox, losing: Losing
) -> None:
    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None: ...

    run = await order.start()
    await losing.lose()
    await losing.lose()
    await losing.lose("pay")  # the third time that it goes down, and the first at this place
    await losing.lose()
    [job] = await sandbox.app.jobs.list(task="order")
    assert (job.state, job.crashes) == ("ready", 2)
    await losing.lose()
    await sandbox.run_due()
    ended = await run.status()
    assert (ended.state, ended.error["cause"]["type"]) == ("failed", "Quarantined")
    assert ended.error["message"] == (
        "step order failed: it went down after 'pay' (number 1), before it recorded what comes next"
    )


async def test_a_function_that_goes_down_before_it_records_anything_says_so(
    sandbox: Sandbox, losing: Losing
) -> None:
    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None: ...

    run = await order.start()
    for _ in range(3):
        await losing.lose()
    await sandbox.run_due()
    said = "step order failed: it went down before it had recorded anything"
    assert (await run.status()).error["message"] == said


async def test_a_function_that_is_stopped_while_its_record_is_written_stops_no_other(
    make_app: Callable[..., App], monkeypatch: pytest.MonkeyPatch
) -> None:
    app, go_on = make_app(concurrency=20), asyncio.Event()
    shared: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def note(number: int) -> int:
        return number

    @app.durable
    async def steps(ctx: DurableContext, number: int) -> int:
        return await ctx.step(note, number)

    record = DurableFunctionStore.record_checkpoints

    async def slow(self: Any, node: Any, rows: Any, blamed: Any) -> Any:
        written = await record(self, node, rows, blamed)
        if len(rows) > 1 and not shared.done():
            shared.set_result(len(rows))
            await go_on.wait()
        return written

    monkeypatch.setattr(DurableFunctionStore, "record_checkpoints", slow)
    asked = _note_records(monkeypatch)
    runs = await steps.start_many(range(3))
    async with Node(app).running():
        together = await asyncio.wait_for(shared, 60)
        asked[-together].cancel()
        go_on.set()
        states = [(await run.wait(60)).state for run in runs]
    assert states.count("succeeded") == 2


def _note_records(monkeypatch: pytest.MonkeyPatch) -> list[asyncio.Future[Any]]:
    """The answers that functions wait for, in the order in which they asked for a record."""
    asked: list[asyncio.Future[Any]] = []
    record = functions.Functions.record

    def noted(self: Any, work: Any, new: Any) -> asyncio.Future[Any]:
        asked.append(record(self, work, new))
        return asked[-1]

    monkeypatch.setattr(functions.Functions, "record", noted)
    return asked
