"""Writes outcomes, in batches, under their tokens.

Protocol. Runners' outcomes gather in memory while one flush is under way; each flush is a few
statements, each guarded by (node, token). A row that isn't found has moved on: somebody else was
given the job, and our outcome is refused, which is counted and logged. When the database is away the
outcomes are kept and written again: a flush whose answer was lost finds its rows gone, and changes
nothing. Dying before the flush means that the jobs are reaped, as if they hadn't run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, TypeVar
from uuid import UUID

from rota.errors import StoreUnavailable
from rota.sealing import Seal
from rota.services.clock import DatabaseClock
from rota.services.log_writer import LogWriter
from rota.store.work import Ended, Retried, Returned, Succeeded, WorkStore

log = logging.getLogger("rota.finisher")

T = TypeVar("T")

_BATCH = 1_000
_LINGER = 0.002  # what a small batch waits for company while more is on its way
_WORTH_A_FLUSH = 200
_LAZY_SECONDS = 1.0


class Finisher:
    name = "finisher"

    def __init__(self, store: WorkStore, more_is_coming: Callable[[], bool]) -> None:
        self._store = store
        self._more_is_coming = more_is_coming
        self.node: UUID | None = None
        self.clock: DatabaseClock | None = None  # without it the database takes its own moment
        self.logs: LogWriter | None = None
        self.succeeded: list[Succeeded] = []
        self.ended: list[Ended] = []
        self.retried: list[Retried] = []
        self.returned: list[Returned] = []
        self.progress: dict[UUID, tuple[int, str]] = {}
        self.seals: dict[UUID, Seal] = {}  # of encrypted jobs that run here
        self.refused = 0
        self._closed: list[int] = []
        self._lazy_at = 0.0

    @property
    def pending(self) -> int:
        return len(self.succeeded) + len(self.ended) + len(self.retried) + len(self.returned)

    def close_batch(self, token: int) -> None:
        """All jobs of this batch are accounted for: the reaper needn't know of it any more."""
        self._closed.append(token)

    def closing(self) -> set[int]:
        return set(self._closed)

    def forget(self) -> None:
        """This node was declared dead: whatever it still has to say would be refused."""
        for gathered in (self.succeeded, self.ended, self.retried, self.returned, self._closed):
            gathered.clear()
        self.progress.clear()
        self.seals.clear()

    async def tick(self) -> float:
        if self.pending == 0:
            await self._flush_lazily(len(self._closed))
            return _LAZY_SECONDS
        if self.pending < _WORTH_A_FLUSH and self._more_is_coming():
            await asyncio.sleep(_LINGER)
        await self.flush()
        return 0.0 if self.pending else _LAZY_SECONDS

    async def flush(self) -> None:
        """Write down everything that has gathered so far."""
        store, now = self._store, monotonic()
        moment = self.clock.database(now) if self.clock else None
        # Only batches that were complete before: the outcomes of a batch that completes meanwhile
        # are still in memory, and if we died now the reaper would have to know of it.
        closable = len(self._closed)
        await self._save_progress()  # before its job is gone
        await self._write(
            self.succeeded, lambda n, part: store.finish_succeeded(n, part, now, None, moment)
        )
        await self._write(self.ended, lambda n, part: store.finish_ended(n, part, now))
        await self._write(self.retried, lambda n, part: store.finish_retried(n, part, now))
        await self._write(self.returned, store.give_back)
        await self._flush_lazily(closable)

    async def _write(self, gathered: list[T], write: Callable[[UUID, Sequence[T]], Any]) -> None:
        while gathered:
            # Whoever sees that a job has ended finds all that it said: first the lines. Of outcomes
            # that come meanwhile nobody knows whether their lines were among those.
            ready = min(len(gathered), _BATCH)
            if self.logs is not None and self.logs.pending:
                await self.logs.flush()
            node = self.node
            assert node is not None
            part = gathered[:ready]
            del gathered[: len(part)]
            try:
                accepted = await self._accepted(node, part, write)
            except StoreUnavailable:
                if node == self.node:
                    gathered[:0] = part
                raise
            if accepted < len(part):
                self._note_refused(len(part) - accepted)

    async def _accepted(
        self, node: UUID, part: Sequence[T], write: Callable[[UUID, Sequence[T]], Any]
    ) -> int:
        """How many were. One that can't be written at all must not take the others with it."""
        try:
            count: int = await write(node, part)
        except StoreUnavailable:
            raise
        except Exception as error:
            if len(part) == 1:
                log.exception("an outcome can't be written, and is given up: %r", part[0])
                return 0
            log.warning("outcomes can't be written together, so one by one: %s", error)
            return sum([await self._accepted(node, [one], write) for one in part])
        return count

    def _note_refused(self, count: int) -> None:
        self.refused += count
        log.warning(
            "%d outcomes were refused: the jobs' leases had moved on, or they were written before",
            count,
        )

    async def _flush_lazily(self, closable: int) -> None:
        """What can wait a second: progress, and the notes about batches that are done."""
        if monotonic() < self._lazy_at or self.node is None:
            return
        self._lazy_at = monotonic() + _LAZY_SECONDS
        await self._save_progress()
        closed = self._closed[:closable]
        if closed:
            await self._store.close_batches(self.node, closed)
            del self._closed[: len(closed)]

    async def _save_progress(self) -> None:
        if self.progress and self.node is not None:
            progress, self.progress = self.progress, {}
            tokens, texts = zip(*progress.values(), strict=True)
            await self._store.save_progress(self.node, list(progress), tokens, texts)
