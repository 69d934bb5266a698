"""Absurd: two processes, in each ten asynchronous workers of five tasks with a connection of their own
(its client has one, on which everything waits for everything else), which look for tasks every 20 ms
instead of every 250.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

import common
from absurd_sdk import AsyncAbsurd
from psycopg import AsyncConnection

_WORKERS = 10


async def _step(number: int) -> None:
    common.started(number)


async def function(params: Any, ctx: Any) -> None:
    for at in range(params["steps"]):
        await ctx.step(f"step-{at}", partial(_step, params["number"] + at))


def _client() -> AsyncAbsurd:
    client = AsyncAbsurd(common.DATABASE_URL, queue_name="functions")
    client.register_task("function")(function)
    return client


async def setup(wish: dict[str, Any]) -> dict[str, Any]:
    ctl = str(Path(sys.executable).parent / "absurdctl")
    init = [ctl, "init", "-d", common.DATABASE_URL]
    await asyncio.to_thread(subprocess.run, init, check=True, stdout=sys.stderr)
    client = _client()
    await client.create_queue("functions")
    await client.close()
    return {"version": importlib.metadata.version("absurd-sdk")}


async def functions(wish: dict[str, Any]) -> None:
    """So many rounds of them, each started in one transaction when the one before has ended."""
    client = _client()
    connection = await AsyncConnection.connect(common.DATABASE_URL)
    starting = AsyncAbsurd(connection, queue_name="functions")
    starting.register_task("function")(function)
    for _ in range(wish["rounds"]):
        spawned = [
            await starting.spawn("function", {"number": number, "steps": wish["steps"]})
            for number in common.chains(wish)
        ]
        await connection.commit()
        for each in spawned:
            await client.await_task_result(each["task_id"])
    await connection.close()
    await client.close()


async def work(wish: dict[str, Any]) -> None:
    share = max(wish["slots"] // _WORKERS, 1)
    workers = [
        asyncio.create_task(_client().start_worker(concurrency=share, poll_interval=0.02))
        for _ in range(_WORKERS)
    ]
    await common.until_told()
    for each in workers:
        each.cancel()


if __name__ == "__main__":
    common.main(setup=setup, functions=functions, work=work)
