"""Jobs that take resources of machines of several sizes; the largest fit on few, if those are empty."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from random import Random

from proof.resource_tasks import AMOUNTS, GPU, LARGEST, LONGEST
from rota import App, Context, Retry

_SOME = Retry(max_attempts=8, base=0.3)
_WEIGHTS = {"one_gpu": 20.0, "two_gpus": 6.0, LARGEST: 1.5}
# When everything is mended: the small ones keep every machine busy for longer than a large one may
# wait, and the large one comes last.
LATE = {"one_gpu": 300, "two_gpus": 40, LARGEST: 1}


def choose_mix(random: Random) -> dict[str, float]:
    return {task: weight * random.choice((1, 1, 3)) for task, weight in _WEIGHTS.items()}


def add_tasks(
    app: App,
    attempt: Callable[[Context], AbstractContextManager[None]],
    nap: Callable[[float], Awaitable[None]],
) -> None:
    # With a timeout: they may start beside a reservation.
    @app.task(retry=_SOME, resources={GPU: AMOUNTS["one_gpu"]}, timeout=2 * LONGEST)
    async def one_gpu(number: int, ctx: Context) -> None:
        with attempt(ctx):
            await nap(LONGEST if number % 3 == 0 else 0.5)
            if ctx.attempt <= number % 3 - 1:
                raise ValueError("not yet")

    @app.task(
        retry=_SOME, resources={GPU: AMOUNTS["two_gpus"]}, concurrency_key=lambda number: number % 2
    )
    async def two_gpus(number: int, ctx: Context) -> None:
        with attempt(ctx):
            await nap(LONGEST)

    @app.task(retry=_SOME, resources={GPU: AMOUNTS[LARGEST]})
    async def most_gpus(number: int, ctx: Context) -> None:
        with attempt(ctx):
            await nap(1)
