"""Handlers that hang, and those that only take long: limits end the first, and nothing else does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from random import Random

import msgspec

from rota import App, Context, Retry

DEAF = 3.0  # so long some don't listen when they are told to stop


class Limits(msgspec.Struct, frozen=True):
    """In seconds. `run_time` has to be set for the queue "other", or for all of them."""

    silence: float = 2.0  # the heartbeat_timeout: twice as long as the lively are ever silent
    timeout: float = 3.0
    run_time: float = 25.0  # longer than handlers take that end by themselves

    def of_tasks(self) -> dict[str, float]:
        return {
            "silent": self.silence, "at_most_silent": self.silence, "lively": self.silence,
            "overdue": self.timeout, "exact_overdue": self.timeout, "endless": self.run_time,
        }  # fmt: skip


HANGING = frozenset(Limits().of_tasks()) - {"lively"}
ENDS = {"at_most_silent": "any"}

_SOME = Retry(max_attempts=8, base=0.3)
_WEIGHTS = {
    "silent": 1.5, "at_most_silent": 1.0, "lively": 2.0, "overdue": 1.5, "exact_overdue": 1.5,
    "endless": 1.0,
}  # fmt: skip


def choose_mix(random: Random) -> dict[str, float]:
    return {task: weight * random.choice((0, 1, 1, 4)) for task, weight in _WEIGHTS.items()}


async def _hang(number: int, hangs: bool) -> None:
    """For ever; every other one goes on for a while when it is told to stop."""
    if not hangs:
        return
    try:
        await asyncio.get_running_loop().create_future()
    except asyncio.CancelledError:
        if number % 2 == 0:
            await _be_deaf()
        raise


async def _be_deaf() -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + DEAF
    while (left := until - loop.time()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            continue


def add_tasks(
    app: App, attempt: Callable[[Context], AbstractContextManager[None]],
    nap: Callable[[float], Awaitable[None]], effect: str, limits: Limits,
) -> None:  # fmt: skip
    """`attempt` journals one attempt, `nap` takes at most so many seconds, and `effect` is the statement
    of an exactly_once job's effect. Which attempts hang is known from the job's number."""

    @app.task(retry=_SOME, heartbeat_timeout=limits.silence)
    async def silent(number: int, ctx: Context) -> None:
        with attempt(ctx):
            await _hang(number, ctx.attempt <= number % 3)
            await nap(0.3)

    @app.task(guarantee="at_most_once", heartbeat_timeout=limits.silence)
    async def at_most_silent(number: int, ctx: Context) -> None:
        with attempt(ctx):
            await _hang(number, number % 3 > 0)

    @app.task(retry=_SOME, heartbeat_timeout=limits.silence, queue="other")
    async def lively(number: int, ctx: Context) -> None:
        """Longer than it may be silent, and never silent for so long."""
        with attempt(ctx):
            for _ in range(number % 12 + 1):
                await nap(1.0)
                ctx.heartbeat()

    @app.task(retry=_SOME, timeout=limits.timeout)
    async def overdue(number: int, ctx: Context) -> None:
        with attempt(ctx):
            await _hang(number, ctx.attempt <= number % 3)
            await nap(0.3)

    @app.task(guarantee="exactly_once", retry=_SOME, timeout=limits.timeout)
    async def exact_overdue(number: int, ctx: Context) -> None:
        """What a hung attempt has written is gone with it."""
        with attempt(ctx):
            await ctx.connection.execute(effect, ctx.job.id, ctx.token)
            await _hang(number, ctx.attempt == 1 and number % 3 > 0)

    @app.task(retry=_SOME, queue="other")
    async def endless(number: int, ctx: Context) -> None:
        """Has no limit of its own."""
        with attempt(ctx):
            await _hang(number, ctx.attempt == 1 and number % 3 > 0)
            await nap(0.3)
