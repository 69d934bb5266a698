"""A client: offers so many jobs a second, and writes down what it asked for and what it was told.

Protocol. A job's id is made, and "asked" is written, before anything is sent. "acknowledged" is written
when the answer has come. Where no answer came the client writes "unknown"; half of the time it goes on
to repeat the same jobs under the same ids, as `rota.submit_jobs(..., repeated => true)` allows, until it
knows. What couldn't be offered in time (the database was away) is offered later, half as fast again: the
rate is met over the whole run.

Two clients submit the same keys in the same moments: the key's number is the time in tenths of a second
on the clock that they share.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import asyncpg
import msgspec

from proof.history import Recorder, Submission
from proof.nemesis.tasks import app
from rota.errors import StoreUnavailable
from rota.lib.ids import new_ids
from rota.store.bulk import BulkStore
from rota.store.rows import Bulk, NewJob, Submitted

log = logging.getLogger("nemesis.client")

_ROUND = 0.05
_IN_FLIGHT = 40
_BULK = 200  # from here on jobs go by COPY
_BULK_EVERY = 5.0
_CATCHING_UP = 1.5
# Of a hundred. Plain functions are dear: each is a trip to a child process. One that hangs has a child
# for itself, of which a worker has two: with many of them, others would start late.
_MIX = {
    "quick": 53.0, "quick_plain": 5.0, "shaky": 10.0, "shaky_plain": 1.0, "doomed": 2.0,
    "at_most": 9.0, "at_most_plain": 2.0, "exact": 9.0, "exact_plain": 2.0, "guarded": 6.0,
    "long": 0.8, "long_plain": 0.2, "odd_value": 0.8, "odd_value_plain": 0.2, "odd_error": 0.6,
    "odd_error_plain": 0.2, "odd_delay": 0.6, "careful": 1.0, "silent": 0.1, "at_most_silent": 0.1,
    "lively": 0.1, "overdue": 0.1, "exact_overdue": 0.1, "endless": 0.1, "silent_plain": 0.015,
    "overdue_plain": 0.015,
}  # fmt: skip


class Client:
    def __init__(self, store: BulkStore, recorder: Recorder, chance: random.Random) -> None:
        self._store = store
        self._recorder = recorder
        self._chance = chance
        self._number = 0

    # -- what is asked

    def make(self, count: int) -> list[NewJob]:
        names = self._chance.choices(list(_MIX), list(_MIX.values()), k=count)
        return [self._job(id, name) for id, name in zip(new_ids(count), names, strict=True)]

    def _job(
        self, id: UUID, name: str, number: int | None = None, key: str | None = None
    ) -> NewJob:
        self._number += 1
        task = app.tasks[name]
        options, chosen = task.options_, number if number is not None else self._number
        delayed = key is None and self._chance.random() < 0.06
        return NewJob(
            id=id, namespace=app.settings.namespace, task=name, queue=options.queue,
            timeout=options.timeout,
            payload=msgspec.Raw(msgspec.json.encode({"number": chosen})),
            guarantee=int(options.guarantee), max_attempts=options.retry.max_attempts, key=key,
            delay=round(self._chance.uniform(0.5, 9.0), 3) if delayed else None,
        )  # fmt: skip

    def bulk(self) -> list[NewJob]:
        """Alike but for their arguments."""
        name = self._chance.choice(("quick", "exact", "at_most"))
        jobs = [self._job(id, name) for id in new_ids(_BULK)]
        return [msgspec.structs.replace(job, delay=jobs[0].delay) for job in jobs]

    def keyed(self, slot: int) -> NewJob:
        name = ("quick", "exact", "quick_plain")[slot % 3]
        return self._job(new_ids(1)[0], name, slot % 1000, f"key-{slot}")

    # -- asking

    async def submit(self, jobs: Sequence[NewJob]) -> None:
        for job in jobs:
            self._note(job, "asked")
        try:
            answers = await self._ask(jobs)
        except (StoreUnavailable, asyncpg.PostgresError):
            for job in jobs:
                self._note(job, "unknown")
            if self._chance.random() < 0.5:
                await self._repeat(jobs)
            return
        await self._answered(jobs, answers)

    async def _ask(self, jobs: Sequence[NewJob]) -> list[Submitted]:
        """By one of the ways that an application has."""
        if len(jobs) >= _BULK:
            bulk = Bulk(jobs[0], [job.id for job in jobs], [bytes(job.payload) for job in jobs])
            await self._store.copy_jobs(bulk)
            return [Submitted(job.id, False, False) for job in jobs]
        if self._chance.random() < 0.1:
            return await self._store.submit_atomically(jobs)
        return await self._store.submit_jobs(jobs)

    async def _repeat(self, jobs: Sequence[NewJob]) -> None:
        encoded = msgspec.json.encode(jobs).decode()
        while True:
            await asyncio.sleep(self._chance.uniform(0.2, 2.0))
            with contextlib.suppress(StoreUnavailable, asyncpg.PostgresError):
                rows = await self._store.database.fetch("submit_jobs", encoded, True, "own")
                await self._answered(jobs, [Submitted(*row) for row in rows])
                return

    async def _answered(self, jobs: Sequence[NewJob], answers: Sequence[Submitted]) -> None:
        for job, answer in zip(jobs, answers, strict=True):
            if answer.conflict:
                self._note(job, "refused")
            else:
                self._note(job, "acknowledged", answer.id)
        doomed = [job for job in jobs if job.key is None and self._chance.random() < 0.01]
        if doomed:
            await self._cancel(doomed)

    async def _cancel(self, jobs: Sequence[NewJob]) -> None:
        await asyncio.sleep(self._chance.choice((0.0, 0.05, 1.0)))
        for job in jobs:
            self._note(job, "acknowledged", cancelled=True)
        with contextlib.suppress(StoreUnavailable):
            await self._store.cancel_jobs(app.settings.namespace, [job.id for job in jobs])

    def _note(
        self, job: NewJob, answer: str, told: UUID | None = None, cancelled: bool = False
    ) -> None:
        line = Submission(
            time.monotonic(), str(told or job.id), job.task, answer, job.delay or 0.0, job.key,
            cancelled,
        )  # type: ignore[arg-type] # fmt: skip
        self._recorder.write(line)


async def offer() -> None:
    """Until SIGTERM; then the answers that are still to come are waited for, for a while.

    SIGUSR1: rest. SIGUSR2: go on, and forget what couldn't be offered.
    """
    stopped, working = _orders()
    recorder = Recorder(Path(os.environ["NEMESIS_FOLDER"]), "clients")
    chance = random.Random(f"{os.environ['NEMESIS_SEED']}-{os.environ['NEMESIS_NODE']}")
    client = Client(await _store(), recorder, chance)
    asking: set[asyncio.Task[None]] = set()
    budget = Budget(float(os.environ["NEMESIS_RATE"]))
    last_slot, bulk_at = 0, time.monotonic() + _BULK_EVERY
    while not stopped.is_set():
        now = time.monotonic()
        if not working.is_set():
            budget = Budget(budget.rate)
            await asyncio.sleep(_ROUND)
            continue
        if now >= bulk_at and len(asking) < _IN_FLIGHT:
            bulk_at = now + _BULK_EVERY
            budget.spend(_BULK)
            _spawn(asking, client, client.bulk())
        if len(asking) < _IN_FLIGHT and (count := budget.take(now)):
            _spawn(asking, client, client.make(count))
        slot = int(now * 2.5)
        if slot != last_slot and len(asking) < 2 * _IN_FLIGHT:
            last_slot = slot
            _spawn(asking, client, [client.keyed(slot)])
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopped.wait(), _ROUND)
    if asking:
        await asyncio.wait(asking, timeout=20)
    await app.close()


def _orders() -> tuple[asyncio.Event, asyncio.Event]:
    """Whether to stop, and whether to work, as the driver's signals say."""
    stopped, working = asyncio.Event(), asyncio.Event()
    working.set()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    loop.add_signal_handler(signal.SIGUSR1, working.clear)
    loop.add_signal_handler(signal.SIGUSR2, working.set)
    return stopped, working


class Budget:
    """How many jobs to offer: the rate over the whole time, never much faster at any."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._begun = self._last = time.monotonic()
        self._offered = 0

    def spend(self, count: int) -> None:
        self._offered += count

    def take(self, now: float) -> int:
        owed = int((now - self._begun) * self.rate) - self._offered
        most = max(int(min(now - self._last, 1.0) * self.rate * _CATCHING_UP), 1)
        self._last = now
        count = max(min(owed, most, _BULK - 1), 0)
        self._offered += count
        return count


def _spawn(asking: set[asyncio.Task[None]], client: Client, jobs: list[NewJob]) -> None:
    task = asyncio.create_task(client.submit(jobs))
    asking.add(task)
    task.add_done_callback(lambda done: _finished(asking, done))


def _finished(asking: set[asyncio.Task[None]], done: asyncio.Task[None]) -> None:
    asking.discard(done)
    if not done.cancelled() and (error := done.exception()) is not None:
        log.error("a submit failed as it must not: %r", error, exc_info=error)


async def _store() -> BulkStore:
    while True:
        try:
            return BulkStore((await app.store()).database)
        except StoreUnavailable as error:
            log.warning("not yet: %s", error)
            await asyncio.sleep(0.5)
