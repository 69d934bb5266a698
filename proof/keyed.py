"""Jobs under limits and in order: how many run at a time, by task and by key, and which goes first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from random import Random

from proof.keyed_tasks import AT_A_TIME
from rota import App, Context, Retry

_SOME = Retry(max_attempts=8, base=0.3)
_WEIGHTS = {"few": 2.0, "lonely": 1.0, "by_customer": 2.0, "in_order": 2.0}


def choose_mix(random: Random) -> dict[str, float]:
    return {task: weight * random.choice((0, 1, 1, 4)) for task, weight in _WEIGHTS.items()}


def add_tasks(
    app: App,
    attempt: Callable[[Context], AbstractContextManager[None]],
    nap: Callable[[float], Awaitable[None]],
) -> None:
    @app.task(retry=_SOME, concurrency=AT_A_TIME["few"])
    async def few(number: int, ctx: Context) -> None:
        with attempt(ctx):
            await nap(5 if number % 4 == 0 else 0.5)

    @app.task(retry=_SOME, concurrency=AT_A_TIME["lonely"])
    async def lonely(number: int, ctx: Context) -> None:
        with attempt(ctx):
            await nap(2)

    # The jobs of a key lie in more sublanes than one claim takes: claims may meet at its limit.
    @app.task(
        retry=_SOME, queue="other", concurrency=AT_A_TIME["by_customer"],
        concurrency_key=lambda number: number % 3, fairness_key=lambda number: number % 7,
    )  # fmt: skip
    async def by_customer(number: int, ctx: Context) -> None:
        with attempt(ctx):
            await nap(1)
            if number % 5 == 0 and ctx.attempt == 1:
                raise ValueError("not yet")

    # Jobs of one order_key with several concurrency keys: they lie in several sublanes. Some wait for so
    # long for their retry that they are no longer among those that are due soon.
    @app.task(
        retry=Retry(max_attempts=8, base=2.5), order_key=lambda number: number % 3,
        concurrency_key=lambda number: number % 2,
    )  # fmt: skip
    async def in_order(number: int, ctx: Context) -> None:
        with attempt(ctx):
            await nap(0.8)
            if ctx.attempt <= number % 3:
                raise ValueError("not yet")
