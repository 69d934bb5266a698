"""Rota: nodes with both roles, as `rota start` runs them, on the standard event loop, with the
settings it comes with: history, fencing, logs of jobs and leases are on. Two nodes
for coroutines; one for plain functions, which run in its two warm child processes.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

import common

import rota
from rota import App
from rota.core.time.schedule import make_spec
from rota.node import Node

app = App(database_url=common.DATABASE_URL)


@app.task
async def noop(number: int) -> None:
    common.started(number)


@app.task
def plain(number: int) -> None:
    common.started(number)


@app.task(runner="thread")
def threaded(number: int) -> None:
    common.started(number)


@app.task
async def hold(number: int) -> None:
    common.started(number)
    await asyncio.sleep(common.hold.seconds)


async def setup(wish: dict[str, Any]) -> dict[str, Any]:
    await app.migrate()
    await app.close()
    return {"version": rota.__version__}


async def submit(wish: dict[str, Any]) -> dict[str, Any]:
    task = app.tasks[wish["task"]]
    await app.store()
    with common.Stopwatch() as watch:
        if wish["how"] == "single":
            for number in common.numbers(wish):
                await task.submit(number)
        else:
            for due, numbers in common.batches(wish):
                at = datetime.fromtimestamp(due, UTC) if due is not None else None
                await task.options(at=at).submit_many([(number,) for number in numbers])
    await app.close()
    return watch.answer()


async def trickle(wish: dict[str, Any]) -> None:
    await app.store()
    await common.at_a_pace(wish, noop.submit)
    await app.close()


async def schedule(wish: dict[str, Any]) -> None:
    rule: dict[str, Any] = {"cron": "* * * * *"} if wish["every"] == "minute" else {"every": 1.0}
    specs = [
        make_spec(f"s{number}", "noop", **rule, payload={"number": number})
        for number in common.numbers(wish)
    ]
    for start in range(0, len(specs), 1_000):
        await app.schedules.put_all(specs[start : start + 1_000])
    await app.close()


async def work(wish: dict[str, Any]) -> None:
    common.hold.seconds = wish.get("hold", 0.0)
    app.settings = app.settings.replace(concurrency=wish["slots"])
    # Only what is measured is registered: without a plain function no child processes are started.
    for name in {"noop", "plain", "threaded", "hold"} - {wish["task"]}:
        del app.tasks[name]
    await Node(app, roles=wish.get("roles", ["worker", "scheduler"])).run()


if __name__ == "__main__":
    common.main(setup=setup, submit=submit, trickle=trickle, schedule=schedule, work=work)
