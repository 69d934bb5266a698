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
    asked: list[asyncio.Task[Any]] = []
    add = functions._Together.add

    async def noted(self: Any, work: Any, new: Any) -> Any:
        asked.append(asyncio.ensure_future(add(self, work, new)))
        return await asked[-1]

    monkeypatch.setattr(functions._Together, "add", noted)
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
