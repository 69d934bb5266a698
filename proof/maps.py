"""Maps: a task for each item of a list, in chunks or as jobs of their own, and what each call saw."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from proof.asking import Asker
from proof.flows import Attempt
from proof.history import Member, Operation
from proof.keyed_tasks import AS_JOBS, IN_CHUNKS
from rota import App, Context, Retry

ENDS = {IN_CHUNKS: "any", AS_JOBS: "any"}
_MOST = 12  # maps that are started


def add_tasks(
    app: App, attempt: Attempt, note: Callable[[Member], None], now: Callable[[], float],
    node: Callable[[], str], nap: Callable[[float], Awaitable[None]], chance: Callable[[], float],
) -> None:  # fmt: skip
    def add(name: str, around: Attempt) -> None:
        @app.task(name=name, retry=Retry(max_attempts=6, base=0.2))
        async def work(item: int, which: str, ctx: Context) -> int:
            def write(event: Any) -> None:
                note(Member(now(), event, which, item, str(ctx.job.id), ctx.token, node()))

            with around(ctx):
                write("start")
                await nap(0.4)
                if chance() < 0.05:
                    write("failed")
                    raise ValueError("not now")
                write("ok")
                return item * 2

    add(IN_CHUNKS, lambda ctx: contextlib.nullcontext())  # its job journals nothing
    add(AS_JOBS, attempt)


class MapOperator:
    """`now` is the history's clock; `note` takes each operation when it is over."""

    def __init__(
        self, app: App, random: Random, now: Callable[[], float],
        note: Callable[[Operation], None], *, pace: float, most: int = _MOST,
    ) -> None:  # fmt: skip
        self._app = app
        self._random = random
        self._asker = Asker(random, now, note)
        self._pace = pace
        self._most = most
        self._number = 0
        self.stopping = False

    async def run(self) -> None:
        while not self.stopping and self._number < self._most:
            await asyncio.sleep(self._random.expovariate(1 / self._pace))
            if not self.stopping:
                await self.start()

    async def start(self) -> None:
        self._number += 1
        name, members = f"map-{self._number}", self._random.randint(1, 40)
        each: Any = self._random.choice(("chunk", "chunk", "job"))
        if each == "job":
            members = min(members, 8)
        size = None if each == "job" else self._random.choice((3, 10))
        task: Any = self._app.tasks[AS_JOBS if each == "job" else IN_CHUNKS]

        async def start() -> dict[str, Any]:
            run = await self._app.map(
                task, over=range(members), size=size, each=each, key=name, at_once=3, which=name
            )
            return {"id": str(run.id)}

        await self._asker.ask("start map", name, start, count=members)
