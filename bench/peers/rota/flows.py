"""Rota: nodes with both roles and the settings it comes with. A chain is measured twice: as a durable
function, which is what a workflow of Temporal and a flow of Prefect are, and as a graph, whose steps are
jobs that any worker may take. One node for chains and for a single function, two for the rest.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

import asyncpg
import common

import rota
from rota import App, DurableContext
from rota.node import Node

app = App(database_url=common.DATABASE_URL)


@app.task
async def step(number: int) -> None:
    if common.hold.seconds:
        await asyncio.sleep(common.hold.seconds)
    common.started(number)


@app.task
async def first(chain: int) -> int:
    await step.function(chain)
    return chain


@app.task
async def later(chain: int, number: int) -> None:
    await step.function(chain + number)


@app.durable
async def function(ctx: DurableContext, number: int, steps: int) -> None:
    for at in range(steps):
        await ctx.step(step, number + at)


@app.durable
async def sleeper(ctx: DurableContext, number: int) -> None:
    await ctx.sleep("1 day")


@app.durable
async def interrupted(ctx: DurableContext, number: int) -> None:
    for at in range(3):
        await ctx.step(hang if at == 1 else pass_by, at)


async def pass_by(number: int) -> None:
    common.started(number)


async def hang(number: int) -> None:
    common.started(number)
    await asyncio.sleep(common.hold.seconds)


async def setup(wish: dict[str, Any]) -> dict[str, Any]:
    await app.migrate()
    await app.close()
    return {"version": rota.__version__}


def _graph(steps: int) -> Any:
    flow = app.workflow(f"chain-{steps}")
    before = beginning = flow.step(first, flow.input("chain"))
    for at in range(1, steps):
        before = flow.step(later, beginning, at, after=before, name=f"step-{at}")
    return flow


async def chain(wish: dict[str, Any]) -> None:
    """Chains one after the other, each from the moment before its start."""
    steps = wish["steps"]
    flow = _graph(steps) if wish["how"] == "graph" else None
    await app.store()
    for number in common.chains(wish):
        if flow is not None:
            run = await flow.start(chain=number)
        else:
            run = await function.start(number, steps)
        await run.wait()
    await app.close()


async def functions(wish: dict[str, Any]) -> None:
    """So many rounds of them, each started in one transaction when the one before has ended."""
    connection = await asyncpg.connect(common.DATABASE_URL)
    await app.store()
    start = function.start_options(connection=connection).start_many
    for _ in range(wish["rounds"]):
        async with connection.transaction():
            calls = [(number, wish["steps"]) for number in common.chains(wish)]
            runs = await start(calls)
        for run in runs:
            await run.wait()
    await connection.close()
    await app.close()


async def fan(wish: dict[str, Any]) -> None:
    """Groups of so many no-ops, one after the other, each with a callback after the last."""
    flow = app.workflow(f"fan-{wish['width']}")
    members = [flow.step(step, number, name=f"member-{number}") for number in range(wish["width"])]
    flow.step(step, common.JOIN, after=members, name="join")
    await app.store()
    # The first stores the graph, and warms up.
    for _ in range(1 + wish["count"]):
        common.sent(0)
        run = await flow.start()
        await run.wait()
    await app.close()


async def members(wish: dict[str, Any]) -> dict[str, Any]:
    """A map over what a generator yields, until its run has ended."""

    async def numbers() -> AsyncIterator[int]:
        for number in range(wish["count"]):
            yield number

    common.sent(0)
    run = await app.map(step, over=numbers(), size=1_000)
    counts = await run.result()
    moment = time.time()
    await app.close()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_000
    return {"moment": moment, "succeeded": counts["succeeded"], "memory_mb": memory}


async def sleepers(wish: dict[str, Any]) -> None:
    numbers = list(common.numbers(wish))
    for at in range(0, len(numbers), 100):
        await asyncio.gather(*(sleeper.start(number) for number in numbers[at : at + 100]))
    await app.close()


async def interrupt(wish: dict[str, Any]) -> None:
    await interrupted.start(0)
    await app.close()


async def work(wish: dict[str, Any]) -> None:
    common.hold.seconds = wish.get("hold", 0.0)
    app.settings = app.settings.replace(concurrency=wish["slots"])
    await Node(app, roles=["worker", "scheduler"]).run()


if __name__ == "__main__":
    common.main(
        setup=setup, chain=chain, functions=functions, fan=fan, members=members,
        sleepers=sleepers, interrupt=interrupt, work=work,
    )  # fmt: skip
