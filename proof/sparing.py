"""Jobs of a queue that keeps all, some or none of those that succeed, switched while they run.

They journal as members of maps do: other rules look for the row of a job, and these may have none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import asyncpg
import msgspec

from proof.asking import Asker
from proof.history import Member, Operation
from proof.keyed_tasks import SPARED, SPARED_EXACT
from rota import App, Context, Retry, StoreUnavailable
from rota.store.rows import NewJob

_MODES = ("all", "failures", "none", "none", "sample:50%")
_KNOWN = 40  # of the last jobs, to be submitted again
_SOME = Retry(max_attempts=8, base=0.3)


def add_tasks(
    app: App, note: Callable[[Member], None], now: Callable[[], float], node: Callable[[], str],
    nap: Callable[[float], Awaitable[None]], effect: str,
) -> None:  # fmt: skip
    def write(ctx: Context, event: Any, number: int) -> None:
        note(Member(now(), event, ctx.job.task, number, str(ctx.job.id), ctx.token, node()))

    @app.task(name=SPARED, queue=SPARED, retry=_SOME)
    async def spared(number: int, ctx: Context) -> None:
        write(ctx, "start", number)
        await nap(6 if number % 5 == 0 else 0.3)
        if number % 4 == 0 and ctx.attempt == 1:
            write(ctx, "failed", number)
            raise ValueError("not yet")
        write(ctx, "ok", number)

    @app.task(name=SPARED_EXACT, queue=SPARED, retry=_SOME, guarantee="exactly_once")
    async def spared_exact(number: int, ctx: Context) -> None:
        write(ctx, "start", number)
        await ctx.connection.execute(effect, ctx.job.id, ctx.token)
        await nap(5 if number % 5 == 0 else 0.3)
        write(ctx, "ok", number)


class SparingOperator:
    """It submits, submits again under the same ids, also what ended long ago, and switches the queue.
    `now` is the history's clock; `note` takes each operation when it is over."""

    def __init__(
        self, app: App, random: Random, now: Callable[[], float],
        note: Callable[[Operation], None], *, pace: float,
    ) -> None:  # fmt: skip
        self._app = app
        self._random = random
        self._asker = Asker(random, now, note)
        self._pace = pace
        self._number = 0
        self._known: list[NewJob] = []
        self.stopping = False

    async def run(self) -> None:
        actions = {self._submit: 6, self._repeat: 4, self._switch: 1.5}
        await self._switch()
        while not self.stopping:
            await asyncio.sleep(self._random.expovariate(1 / self._pace))
            if not self.stopping:
                await self._random.choices(list(actions), list(actions.values()))[0]()

    async def _submit(self) -> None:
        for _ in range(self._random.randint(1, 3)):
            self._number += 1
            task = self._random.choice((SPARED, SPARED, SPARED_EXACT))
            job, _ = self._app.rota.submissions._named_job(task, {"number": self._number}, {})
            self._known = [*self._known[1 - _KNOWN :], job]
            await self._ask(job)

    async def _repeat(self) -> None:
        if self._known:
            await self._ask(self._random.choice(self._known))

    async def _ask(self, job: NewJob) -> None:
        """By plain SQL, as those submit who choose ids themselves, until there is an answer."""

        async def submit() -> dict[str, Any]:
            database = (await self._app.store()).database
            text = f"select * from {database.schema}.submit_jobs($1::json)"
            try:
                async with database.transaction("repeat") as connection:
                    await connection.fetch(text, msgspec.json.encode([job]).decode())
            except asyncpg.PostgresError as error:
                raise StoreUnavailable(str(error)) from error
            return {}

        await self._asker.ask("submit spared", str(job.id), submit, detail=job.task)

    async def _switch(self) -> None:
        mode = self._random.choice(_MODES)

        async def switch() -> dict[str, Any]:
            await self._app.queues.set_history(SPARED, mode)
            return {}

        await self._asker.ask("switch history", SPARED, switch, detail=mode)
