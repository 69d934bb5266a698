"""Unique, debounced and throttled jobs, and whoever submits them again and again under a few keys."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from random import Random
from typing import Any

from proof import keyed_tasks as keyed
from proof.asking import Asker
from proof.history import Operation
from rota import App, Context, Retry

_SOME = Retry(max_attempts=8, base=0.3)
_KEYS = 2
# At these moments all clients submit the same job, of one key after the other: shortly after its window.
_MET = 5
_MEET = (keyed.WINDOW + 0.5) / _MET
_SCOPES: dict[str, Any] = {
    keyed.WHILE_WAITING: "waiting", keyed.WHILE_UNFINISHED: "unfinished",
    keyed.IN_A_WINDOW: keyed.WINDOW,
}  # fmt: skip


def add_tasks(
    app: App,
    attempt: Callable[[Context], AbstractContextManager[None]],
    nap: Callable[[float], Awaitable[None]],
) -> None:
    def add(name: str, seconds: float, **options: Any) -> None:
        @app.task(name=name, retry=_SOME, unique_key="key", **options)
        async def work(key: int, number: int, ctx: Context) -> None:
            with attempt(ctx):
                await nap(seconds)

    for name, seconds in (
        (keyed.WHILE_WAITING, 2.0), (keyed.WHILE_UNFINISHED, 8.0), (keyed.IN_A_WINDOW, 1.0)
    ):  # fmt: skip
        add(name, seconds, unique=_SCOPES[name])
    add(keyed.DEBOUNCED, 1.0, debounce=keyed.DEBOUNCE, debounce_max=keyed.DEBOUNCE_MAX)
    add(keyed.THROTTLED, 1.0, throttle=keyed.WINDOW, throttle_keep="last")


class UniqueClient:
    """`now` is the history's clock; `note` takes each submit when it is over."""

    def __init__(
        self, app: App, random: Random, now: Callable[[], float],
        note: Callable[[Operation], None], *, pace: float,
    ) -> None:  # fmt: skip
        self._app = app
        self._random = random
        self._now = now
        self._asker = Asker(random, now, note)
        self._pace = pace
        self._number = 0
        self.stopping = False

    async def run(self) -> None:
        while not self.stopping:
            meeting = (self._now() // _MEET + 1) * _MEET
            pause = self._random.expovariate(1 / self._pace)
            if self._now() + pause < meeting:
                await asyncio.sleep(pause)
                for _ in range(self._random.choice((1, 1, 3))):
                    task = self._random.choice(keyed.UNIQUE)
                    await self._submit(task, self._random.randrange(_KEYS))
            else:
                await asyncio.sleep(max(meeting - self._now(), 0))
                await self._submit(keyed.IN_A_WINDOW, _KEYS + round(meeting / _MEET) % _MET)

    async def _submit(self, task: str, key: int) -> None:
        self._number += 1
        conflicts = ["return", "return"]
        if task in _SCOPES:
            conflicts.append("refuse")
        if task == keyed.WHILE_WAITING:
            conflicts.append("replace")
        conflict, number = self._random.choice(conflicts), self._number
        bound: Any = self._app.tasks[task]
        if conflict != "return":
            bound = bound.options(unique_conflict=conflict, unique=_SCOPES[task])

        async def submit() -> dict[str, Any]:
            asked = self._now()
            job = await bound.submit(key, number)
            return {"id": str(job.id), "first": asked, "count": int(job.existed)}

        await self._asker.ask("submit unique", f"{task}/{key}", submit, detail=conflict)
