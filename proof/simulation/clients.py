"""Simulated clients: they submit, cancel and repeat, and write down what they asked and were told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from random import Random
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from proof.history import Submission
from proof.simulation.template import SCHEMA
from rota import App, KeyConflict, NotFound, RotaError, StoreUnavailable, SubmitError
from rota.store.rows import NewJob

Mix = dict[str, float]

_SUBMIT_AGAIN = f"select * from {SCHEMA}.submit_jobs($1::json)"

_MIX: Mix = {
    "quick": 10.0, "shaky": 4.0, "doomed": 1.0, "long": 2.0, "stubborn": 1.0, "at_most": 5.0,
    "exact": 5.0, "guarded": 4.0,
}  # fmt: skip


_ODD: Mix = {"odd_value": 2.0, "odd_error": 1.5, "odd_delay": 1.5, "careful": 3.0}


def choose_mix(random: Random) -> Mix:
    """Each seed has its favourites and leaves some out, as with the faults: what is everywhere a
    little is nowhere often enough to be there at the wrong moment."""
    return {task: weight * random.choice((0.2, 1, 1, 6)) for task, weight in _MIX.items()}


def choose_odd(random: Random) -> Mix:
    return {task: weight * random.choice((0, 1, 1, 4)) for task, weight in _ODD.items()}


class Client:
    """One application that submits, at random moments, until told to stop."""

    def __init__(
        self, app: App, random: Random, records: list[Submission], pace: float, mix: Mix,
        repeats: bool = False,
    ) -> None:  # fmt: skip
        self._app = app
        self._mix = mix
        self._random = random
        self._records = records
        self._pace = pace
        self._number = 0
        self._known: list[tuple[UUID, str]] = []
        self._asked: list[NewJob] = []  # to be asked for again
        self._repeats = repeats
        self.stopping = False

    async def run(self) -> None:
        actions = {
            self._submit_some: 10, self._submit_keyed: 4, self._cancel: 2, self._bulk: 1,
        }  # fmt: skip
        if self._repeats:
            actions[self._repeat] = 3
        while not self.stopping:
            await asyncio.sleep(self._random.expovariate(1 / self._pace))
            action = self._random.choices(list(actions), list(actions.values()))[0]
            with contextlib.suppress(StoreUnavailable):
                await action()

    async def submit_later(self, after: float, counts: Mapping[str, int]) -> None:
        """Submit so many jobs of each task at once."""
        await asyncio.sleep(after)
        for task, count in counts.items():
            jobs = [self._new_job(task, self._next(), None, None) for _ in range(count)]
            await self._ask(jobs, atomically=True)

    # -- asking

    async def _submit_some(self) -> None:
        for _ in range(self._random.randint(1, 4)):
            await self._submit(self._choose(), delay=self._choose_delay())

    def _choose(self) -> str:
        return self._random.choices(list(self._mix), list(self._mix.values()))[0]

    def _choose_delay(self) -> float | None:
        return round(self._random.uniform(0.2, 15), 3) if self._random.random() < 0.4 else None

    async def _submit_keyed(self) -> None:
        """Others use the same keys at the same time."""
        slot = int(asyncio.get_running_loop().time() / 3)
        task = ("quick", "exact", "at_most")[slot % 3]
        await self._submit(task, key=f"key-{slot}", number=slot)

    async def _bulk(self) -> None:
        """Many at once, all or none. Under limits by key, several claims have something to take then."""
        limited = bool(self._mix.get("by_customer")) and self._random.random() < 0.5
        task = "by_customer" if limited else "quick"
        jobs = [self._new_job(task, self._next(), None, None) for _ in range(12)]
        await self._ask(jobs, atomically=True)

    async def _repeat(self) -> None:
        """What was submitted before, under the same id: it may have ended long ago. By plain SQL, as
        those submit who choose ids themselves: all else makes a new id each time."""
        if self._asked:
            job = self._random.choice(self._asked[-60:])
            self._note(job, "asked")
            database = (await self._app.store()).database
            try:
                async with database.transaction("repeat") as connection:
                    await connection.fetch(_SUBMIT_AGAIN, msgspec.json.encode([job]).decode())
            except (StoreUnavailable, asyncpg.PostgresError):
                self._note(job, "unknown")
                return
            self._note(job, "acknowledged")

    async def _submit(
        self, task: str, delay: float | None = None, key: str | None = None,
        number: int | None = None,
    ) -> None:  # fmt: skip
        chosen = self._next() if number is None else number
        await self._ask([self._new_job(task, chosen, delay, key)])

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _new_job(self, task: str, number: int, delay: float | None, key: str | None) -> NewJob:
        options: dict[str, Any] = {"delay": delay, "key": key}
        given = {name: value for name, value in options.items() if value is not None}
        job, _ = self._app.rota.submissions._named_job(task, {"number": number}, given)
        return job

    async def _ask(self, jobs: list[NewJob], atomically: bool = False) -> None:
        for job in jobs:
            self._note(job, "asked")
        store = await self._app.store()
        try:
            if atomically:
                answers = await store.submit_atomically(jobs)
            else:
                answers = await (await self._app.rota.submitter()).submit(jobs)
        except (SubmitError, KeyConflict):
            for job in jobs:
                self._note(job, "refused")
            return
        except (StoreUnavailable, asyncpg.PostgresError):
            for job in jobs:
                self._note(job, "unknown")
            return
        if self._repeats:
            self._asked += [job for job in jobs if job.key is None]
        for job, answer in zip(jobs, answers, strict=True):
            self._note(job, "refused" if answer.conflict else "acknowledged", answer.id)
            self._known.append((answer.id, job.task))

    # -- steering

    async def _cancel(self) -> None:
        if not self._known:
            return
        id, task = self._random.choice(self._known[-10:])
        self._note_open(id, task)
        with contextlib.suppress(NotFound, RotaError):
            await self._app.jobs.cancel(id)

    def _note(self, job: NewJob, answer: Any, told: UUID | None = None) -> None:
        at = asyncio.get_running_loop().time()
        name = str(told or job.id)
        self._records.append(Submission(at, name, job.task, answer, job.delay or 0.0, job.key))

    def _note_open(self, id: UUID, task: str) -> None:
        at = asyncio.get_running_loop().time()
        self._records.append(Submission(at, str(id), task, "acknowledged", cancelled=True))
