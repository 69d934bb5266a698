"""Jobs under limits, in order, unique, in maps and in a queue with a limit of depth: submitted, and
workers drained, by the operator's process.

What is shared isn't written down: its submits have no answer that somebody relies on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import asyncpg

from proof import keyed_tasks as keyed
from proof import quotas
from proof.draining import DrainOperator
from proof.history import Operation, Recorder, Submission
from proof.maps import MapOperator
from proof.quota_tasks import QUEUE
from proof.shares import ShareOperator
from proof.unique import UniqueClient
from rota import App
from rota.errors import StoreUnavailable, SubmitError
from rota.store.rows import NewJob

_PACE = 0.5
_PACE_OF_SHARES = 1.0
_PACE_OF_MAPS = 5.0
_MAPS = 60
_PACE_OF_DRAINS = 20.0
# How many are submitted at a time, at most.
_TASKS = {"few": 4, "lonely": 2, "by_customer": 6, "in_order": 4, QUEUE: 2, keyed.PACED: 2}
_LATER = (20.0, 40.0, 60.0)  # seconds after which all may be calm


class KeyedOperator:
    """Submits jobs that wait for each other, and writes that down as clients do."""

    def __init__(self, app: App, random: Random, recorder: Recorder) -> None:
        self._app = app
        self._random = random
        self._recorder = recorder
        self._number = 0
        self.stopping = False

    async def run(self) -> None:
        await quotas.set_limit(self._app)
        while not self.stopping:
            await asyncio.sleep(self._random.expovariate(1 / _PACE))
            name = self._random.choice(list(_TASKS))
            await self._submit(name, self._random.randint(1, _TASKS[name]))

    async def leave(self) -> None:
        """For when nothing is broken any more: then every free place must be taken."""
        for delay in _LATER:
            for name, count in (("few", 6), ("lonely", 3), ("by_customer", 6), (keyed.PACED, 8)):
                await self._submit(name, count, delay=delay)

    async def _submit(self, name: str, count: int, *, delay: float = 0.0) -> None:
        jobs = [self._make(name, delay) for _ in range(count)]
        self._note(jobs, "asked")
        try:
            answers = await (await self._app.store()).submit_atomically(jobs)
        except SubmitError:
            self._note(jobs, "refused")
        except (StoreUnavailable, asyncpg.PostgresError):
            self._note(jobs, "unknown")
        else:
            assert [answer.id for answer in answers] == [job.id for job in jobs]
            self._note(jobs, "acknowledged")

    def _make(self, name: str, delay: float) -> NewJob:
        self._number += 1
        given = {"delay": delay} if delay else {}
        job, _ = self._app.rota.submissions._named_job(name, {"number": self._number}, given)
        return job

    def _note(self, jobs: Sequence[NewJob], answer: Any) -> None:
        for job in jobs:
            due_in = job.delay or 0.0
            self._recorder.write(
                Submission(time.monotonic(), str(job.id), job.task, answer, due_in)
            )


class Limited:
    """All of them."""

    def __init__(
        self, app: App, seed: str, note: Callable[[Operation], None], submitted: Recorder
    ) -> None:
        def chance(name: str) -> Random:
            return Random(f"{seed} {name}")

        now = time.monotonic
        self._keyed = KeyedOperator(app, chance("keyed"), submitted)
        self._shares = ShareOperator(app, chance("shares"), pace=_PACE_OF_SHARES)
        self.operators: tuple[Any, ...] = (
            self._keyed,
            self._shares,
            MapOperator(app, chance("maps"), now, note, pace=_PACE_OF_MAPS, most=_MAPS),
            DrainOperator(
                app, chance("drains"), now, note, lambda node: node.name, pace=_PACE_OF_DRAINS
            ),
            *(UniqueClient(app, chance(f"unique {n}"), now, note, pace=1.0) for n in (1, 2)),
        )

    async def begin(self) -> None:
        await self._shares.begin()

    async def leave(self) -> None:
        await self._keyed.leave()
