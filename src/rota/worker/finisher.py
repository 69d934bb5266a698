"""Writes outcomes, in batches, under their tokens.

Protocol. Runners' outcomes gather in memory while one flush is under way; each flush is a few
statements, each guarded by (node, token). A row that isn't found has moved on: somebody else was
given the job, and our outcome is refused, which is counted and logged. When the database is away, or
can't write them at the moment, the outcomes are kept and written again: a flush whose answer was lost
finds its rows gone, and changes nothing. Dying before the flush means that the jobs are reaped, as if
they hadn't run.

A part that could not be written is halved before it is tried again, and goes behind the others, so that
what is too much for one statement, or breaks it, doesn't hold up the rest. An outcome that can't be
written for a reason of its own (a value that the database refuses) is written without that value, or
else as a failure: no job stays running because of what its handler said.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, TypeVar
from uuid import UUID

from rota.errors import StoreUnavailable
from rota.lib.encryption import Encryptor
from rota.model import Failure, State
from rota.runtime.clock import DatabaseClock
from rota.runtime.entries import encode_failure
from rota.store.database import is_bad_value
from rota.store.work import Ended, Retried, Returned, Succeeded, WorkStore
from rota.worker.log_writer import LogWriter

log = logging.getLogger("rota.finisher")

AnyOutcome = TypeVar("AnyOutcome", Succeeded, Ended, Retried, Returned)

_BATCH = 1_000
_BYTES = 8_000_000  # of results and errors in one statement
_PATIENCE_WITH_LINES = 3  # flushes that log lines may hold up
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
        self.encryptors: dict[UUID, Encryptor] = {}  # of encrypted jobs that run here
        self.refused = 0
        self._most = _BATCH  # outcomes in one statement: fewer after one that could not be written
        self._lines_failed = 0
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
        self.encryptors.clear()

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
        problems = [
            await self._write(
                self.succeeded, lambda n, part: store.finish_succeeded(n, part, now, None, moment)
            ),
            await self._write(self.ended, lambda n, part: store.finish_ended(n, part, now)),
            await self._write(self.retried, lambda n, part: store.finish_retried(n, part, now)),
            await self._write(self.returned, store.give_back),
        ]
        await self._flush_lazily(closable)
        for problem in problems:
            if problem is not None:
                raise problem

    async def _write(
        self, gathered: list[AnyOutcome], write: Callable[[UUID, Sequence[AnyOutcome]], Any]
    ) -> Exception | None:
        """All of it, or until a part can't be written: that is kept, and what was in its way told."""
        while gathered:
            # Whoever sees that a job has ended finds all that it said: first the lines. Of outcomes
            # that come meanwhile nobody knows whether their lines were among those.
            ready = self._first_part(gathered)
            await self._write_lines()
            node = self.node
            assert node is not None
            part = gathered[:ready]
            del gathered[: len(part)]
            try:
                accepted = await self._accepted(node, part, write)
            except BaseException as error:
                self._most = max(1, len(part) // 2)
                if node == self.node:  # behind the others: it may be what breaks them
                    gathered.extend(part)
                if isinstance(error, StoreUnavailable) and not error.answered:
                    raise
                if not isinstance(error, Exception):
                    raise
                return error
            self._most = min(_BATCH, self._most * 2)
            if accepted < len(part):
                self._note_refused(len(part) - accepted)
        return None

    def _first_part(self, gathered: Sequence[AnyOutcome]) -> int:
        """How many of the first fit into one statement. One at least."""
        count = min(len(gathered), self._most)
        most_bytes = max(_BYTES * self._most // _BATCH, 1)
        size = 0
        for number in range(count):
            size += gathered[number].size
            if size > most_bytes and number:
                return number
        return count

    async def _write_lines(self) -> None:
        if self.logs is None or not self.logs.pending:
            return
        try:
            await self.logs.flush()
        except StoreUnavailable as error:
            # What can't be written by itself must not keep jobs running for ever.
            self._lines_failed += 1
            if not error.answered or self._lines_failed < _PATIENCE_WITH_LINES:
                raise
            log.warning("outcomes are written before the lines of their jobs: %s", error)
        else:
            self._lines_failed = 0

    async def _accepted(
        self, node: UUID, part: Sequence[AnyOutcome],
        write: Callable[[UUID, Sequence[AnyOutcome]], Any],
    ) -> int:  # fmt: skip
        """How many were. One that can't be written at all must not take the others with it."""
        try:
            count: int = await write(node, part)
        except Exception as error:
            if not is_bad_value(error):
                raise
            if len(part) == 1:
                return await self._write_otherwise(node, part[0], error)
            log.warning("outcomes can't be written together, so apart: %s", error)
        else:
            return count
        half = len(part) // 2
        first = await self._accepted(node, part[:half], write)
        return first + await self._accepted(node, part[half:], write)

    async def _write_otherwise(self, node: UUID, outcome: AnyOutcome, error: Exception) -> int:
        """Without what the database refuses; and if that doesn't help, as a failure."""
        log.error("the outcome of job %s can't be written as it is: %s", outcome.id, error)
        now = monotonic()
        why = f"what the job gave can't be stored: {error}"
        if isinstance(outcome, Succeeded):
            dropped = encode_failure(Failure("ResultDropped", why))
            bare = Succeeded(outcome.id, outcome.token, outcome.ran, outcome.ended, error=dropped)
            try:
                return await self._store.finish_succeeded(node, [bare], now)
            except Exception as again:
                if not is_bad_value(again):
                    raise
        ran, ended = getattr(outcome, "ran", 0.0), getattr(outcome, "ended", now)
        crashes = getattr(outcome, "crashes", 0)
        state = getattr(outcome, "state", State.FAILED)
        failure = encode_failure(Failure("OutcomeNotStored", why))
        plain = Ended(outcome.id, outcome.token, state, None, failure, crashes, ran, ended)
        return await self._store.finish_ended(node, [plain], now)

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
        unwritten = self._unwritten_tokens() if self.pending else set()
        closed = [token for token in self._closed[:closable] if token not in unwritten]
        if closed:
            await self._store.batches.close(self.node, closed)
            gone = set(closed)
            self._closed = [token for token in self._closed if token not in gone]

    def _unwritten_tokens(self) -> set[int]:
        """Of batches that the reaper has to know of, if we die now."""
        kept = (self.succeeded, self.ended, self.retried, self.returned)
        return {outcome.token for gathered in kept for outcome in gathered}

    async def _save_progress(self) -> None:
        if self.progress and self.node is not None:
            progress, self.progress = self.progress, {}
            tokens, texts = zip(*progress.values(), strict=True)
            try:
                await self._store.save_progress(self.node, list(progress), tokens, texts)
            except StoreUnavailable:
                self.progress = {**progress, **self.progress}  # what was said since then counts
                raise
            except Exception:
                # Only a word on the way: no reason to hold up outcomes.
                log.exception("the progress of %d jobs could not be written", len(progress))
