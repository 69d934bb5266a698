"""Durable functions on a running node: what they record together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rota import App, DurableContext
from rota.node import Node
from rota.store.durable_functions import DurableFunctionStore


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
    assert written.count(20) >= 15, written
