"""Jobs of a queue with a limit of depth, which clients fill until they are refused."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from random import Random

import asyncpg

from proof.quota_tasks import MAX_DEPTH, QUEUE
from rota import App, Context, Retry, StoreUnavailable

_SOME = Retry(max_attempts=6, base=0.5)


def choose_mix(random: Random) -> dict[str, float]:
    return {"narrow": 10.0 * random.choice((1, 1, 3))}


async def set_limit(app: App) -> None:
    """Set the limit, however often that takes."""
    while True:
        with contextlib.suppress(StoreUnavailable, asyncpg.PostgresError):
            await app.queues.set_max_depth(QUEUE, MAX_DEPTH)
            return
        await asyncio.sleep(1)


def add_tasks(
    app: App,
    attempt: Callable[[Context], AbstractContextManager[None]],
    nap: Callable[[float], Awaitable[None]],
) -> None:
    @app.task(retry=_SOME, queue=QUEUE)
    async def narrow(number: int, ctx: Context) -> None:
        with attempt(ctx):
            await nap(8)
            if ctx.attempt <= number % 3:
                raise ValueError("not yet")
