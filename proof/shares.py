"""A fair queue: keys with weights, one of which is idle for long, and a backlog of all; and a rate."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from random import Random
from typing import Any

from proof.keyed_tasks import AT_ONCE, EVERY, LONGEST, PACED, SHARED, SHARES
from rota import App, Context, Retry
from rota.errors import StoreUnavailable

_LATE = "d"  # idle until everybody has a backlog: it gets no credit for that
_BACKLOG = 40  # jobs of each key
_PACED = 30
_SUBLANES = 5  # of each key


def add_tasks(
    app: App,
    attempt: Callable[[Context], AbstractContextManager[None]],
    nap: Callable[[float], Awaitable[None]],
) -> None:
    # The jobs of a key lie in several sublanes, in all more than a claim takes: claims may meet at the
    # limit of the queue.
    @app.task(
        name=SHARED, queue=SHARED, retry=Retry(max_attempts=8, base=0.3), fairness_key="key",
        concurrency_key=lambda key, number: number % _SUBLANES,
    )  # fmt: skip
    async def share(key: str, number: int, ctx: Context) -> None:
        with attempt(ctx):
            await nap(LONGEST)

    @app.task(name=PACED, retry=Retry(max_attempts=8, base=0.3), rate=f"{1 / EVERY:g}/s")
    async def paced(number: int, ctx: Context) -> None:
        with attempt(ctx):
            await nap(0.2)


class ShareOperator:
    def __init__(self, app: App, random: Random, *, pace: float) -> None:
        self._app = app
        self._random = random
        self._pace = pace
        self.stopping = False

    async def begin(self) -> None:
        queues = self._app.queues
        await self._persist(lambda: queues.set_policy(SHARED, "fair"))
        await self._persist(lambda: queues.set_limits(SHARED, concurrency=AT_ONCE))
        for key, weight in SHARES.items():
            await self._persist(
                lambda key=key, weight=weight: queues.set_weight(SHARED, key, weight)
            )

    async def run(self) -> None:
        """Some jobs now and then, most of them of one key."""
        early = [key for key in SHARES if key != _LATE]
        while not self.stopping:
            await asyncio.sleep(self._random.expovariate(1 / self._pace))
            key = self._random.choice([*early, early[0], early[0]])
            await self._submit([key] * self._random.randint(1, 4))

    async def leave(self) -> None:
        """More than can run at once of each key."""
        keys = [key for key in SHARES for _ in range(_BACKLOG)]
        self._random.shuffle(keys)
        for first in range(0, len(keys), 40):
            await self._submit(keys[first : first + 40])
        await self._persist(lambda: self._app.tasks[PACED].submit_many(range(_PACED)))

    async def _submit(self, keys: list[str]) -> None:
        jobs = [(key, self._random.randrange(_SUBLANES)) for key in keys]
        await self._persist(lambda: self._app.tasks[SHARED].submit_many(jobs))

    async def _persist(self, act: Callable[[], Awaitable[Any]]) -> None:
        while True:
            try:
                await act()
                return
            except StoreUnavailable:
                await asyncio.sleep(0.5)
