"""Commits submits together that arrive at the same time.

Protocol. A caller leaves its jobs and waits; one flush is under way at a time, and takes everything
that gathered during the one before. A caller is answered only after the commit. When a flush fails
by its jobs (and not because the database is unavailable), each caller's jobs are tried on their own, so
that one bad job fails one caller.

Unique jobs are not joined with others: one may have to wait for the transaction of another submit of its
key, which can take long. They use at most half of the connections, for a fifth of a second at a time.
"""

from __future__ import annotations

import asyncio
from typing import TypeAlias

from rota.errors import StoreUnavailable
from rota.store.jobs import JobStore
from rota.store.rows import NewJob, Submitted

_FLUSH = 500

_Waiting: TypeAlias = tuple[list[NewJob], "asyncio.Future[list[Submitted]]"]


class Submitter:
    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._waiting: list[_Waiting] = []
        self._flusher: asyncio.Task[None] | None = None
        self._unique = asyncio.Semaphore(max(1, store.database.settings.pool_size // 2))

    async def submit_unique(self, job: NewJob) -> Submitted:
        return (await self._store.submit_unique([job], gate=self._unique))[0]

    async def submit(self, jobs: list[NewJob]) -> list[Submitted]:
        answer: asyncio.Future[list[Submitted]] = asyncio.get_running_loop().create_future()
        self._waiting.append((jobs, answer))
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.create_task(self._flush_all())
        return await answer

    async def _flush_all(self) -> None:
        while self._waiting:
            taken = self._take()
            try:
                await self._flush(taken)
            except Exception as error:  # noqa: BLE001 - handed to the callers who wait for it
                if len(taken) == 1 or isinstance(error, StoreUnavailable):
                    _fail(taken, error)
                else:
                    await self._flush_one_by_one(taken)

    def _take(self) -> list[_Waiting]:
        size = count = 0
        for jobs, _ in self._waiting:
            size += len(jobs)
            count += 1
            if size >= _FLUSH:
                break
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return taken

    async def _flush(self, taken: list[_Waiting]) -> None:
        answers = await self._store.submit_jobs([job for jobs, _ in taken for job in jobs])
        start = 0
        for jobs, future in taken:
            if not future.done():
                future.set_result(answers[start : start + len(jobs)])
            start += len(jobs)

    async def _flush_one_by_one(self, taken: list[_Waiting]) -> None:
        for one in taken:
            try:
                await self._flush([one])
            except Exception as error:  # noqa: BLE001 - handed to the caller who waits for it
                _fail([one], error)


def _fail(taken: list[_Waiting], error: Exception) -> None:
    for _, future in taken:
        if not future.done():
            future.set_exception(error)
