"""Durable functions on a running node: what they record together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from proof.waiting import eventually
from rota import App, DurableContext
from rota.node import Node
from rota.store.durable_functions import DurableFunctionStore
from rota.worker import functions


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

    async def counted(self: Any, node: Any, rows: Any) -> Any:
        written.append(len(rows))
        return await record(self, node, rows)

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

    async def slow(self: Any, node: Any, rows: Any) -> Any:
        under_way.set()
        await go_on.wait()
        return await record(self, node, rows)

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

    async def slow(self: Any, node: Any, rows: Any) -> Any:
        written = await record(self, node, rows)
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
