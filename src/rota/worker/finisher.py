"""Writes outcomes, in batches, under their tokens.

Protocol. Runners' outcomes gather in memory while one flush is under way; each flush is a few
statements, each guarded by (node, token). A row that isn't found has moved on: somebody else was
given the job, and our outcome is refused, which is counted and logged. When the database is away, or
can't write them at the moment, the outcomes are kept and written again: a flush whose answer was lost
finds its rows gone, and changes nothing. Dying before the flush means that the jobs are reaped, as if
they hadn't run.

A part that could not be written is halved before it is tried again, and goes after the others, so that
what is too much for one statement, or breaks it, doesn't hold up the rest. An outcome that can't be
written for a reason of its own (a value that the database refuses) is written without that value, or
else as a failure (`attempts.write_apart`): no job stays running because of what its handler returned.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from time import monotonic
from uuid import UUID

from rota.errors import StoreUnavailable
from rota.runtime.attempts import AnyWrite, Verdicts, Write, write_apart
from rota.runtime.clock import DatabaseClock
from rota.runtime.ticker import Service
from rota.store.work import WorkStore
from rota.worker.log_writer import LogWriter

log = logging.getLogger("rota.finisher")

_BATCH = 1_000
_BYTES = 8_000_000  # of results and errors in one statement
_PATIENCE_WITH_LINES = 3  # flushes that log lines may hold up
_LINGER = 0.002  # seconds that a small batch waits for more outcomes, while jobs run
_WORTH_A_FLUSH = 200
_LAZY_SECONDS = 1.0


class Finisher(Service):
    name = "finisher"

    def __init__(
        self, store: WorkStore, verdicts: Verdicts, clock: DatabaseClock, logs: LogWriter | None
    ) -> None:
        self._store = store
        self.verdicts = verdicts
        self._clock = clock
        self._logs = logs
        self.more_is_coming: Callable[[], bool] = lambda: False  # whether jobs run or wait
        # Called before and after a flush: what had ended before it is written after it.
        self.flush_begins: Callable[[], None] = lambda: None
        self.flush_ended: Callable[[], None] = lambda: None
        self.progress: dict[UUID, tuple[int, str]] = {}
        self.refused = 0
        # A step of a workflow is among what gathers: its run may have to go on.
        self.step_failed = False
        self._most = _BATCH  # outcomes in one statement: fewer after one that could not be written
        self._lines_failed = 0
        self._closed: list[int] = []
        self._lazy_at = 0.0

    @property
    def pending(self) -> int:
        return len(self.verdicts)

    def close_batch(self, token: int) -> None:
        """Note that all jobs of a batch are accounted for: the reaper needn't know of it any more."""
        self._closed.append(token)

    def closing(self) -> set[int]:
        return set(self._closed)

    def forget(self) -> None:
        """Forget everything: this node was declared dead, and its writes would be refused."""
        self.verdicts.clear()
        self._closed.clear()
        self.progress.clear()

    async def tick(self) -> float:
        if self.pending == 0:
            self.flush_begins()  # what has ended was written by others, or there was nothing to write
            self.flush_ended()
            await self._flush_lazily(len(self._closed))
            return _LAZY_SECONDS
        if self.pending < _WORTH_A_FLUSH and self.more_is_coming():
            await asyncio.sleep(_LINGER)
        await self.flush()
        return 0.0 if self.pending else _LAZY_SECONDS

    async def flush(self) -> None:
        """Write everything that has gathered so far."""
        self.flush_begins()
        now = monotonic()
        moment = self._clock.database(now)  # None: the database takes its own
        # Only batches that were complete before: the outcomes of a batch that completes meanwhile
        # are still in memory, and if we died now the reaper would have to know of it.
        closable = len(self._closed)
        await self._save_progress()  # before its job is gone
        problems = [
            await self._write(gathered, write, now)
            for gathered, write in self.verdicts.writes(self._store, now, None, moment)
        ]
        self.flush_ended()
        if self.step_failed and not self.verdicts.ended:
            self.step_failed = False
            self._store.steps_ended()
        await self._flush_lazily(closable)
        for problem in problems:
            if problem is not None:
                raise problem

    async def _write(self, gathered: list[AnyWrite], write: Write, now: float) -> Exception | None:
        """Write all of it. A part that can't be written is kept, and the error returned."""
        while gathered:
            # Whoever sees that a job has ended must find all of its output: the lines go first. Of
            # outcomes that arrive meanwhile nobody knows whether their lines were among those.
            ready = self._first_part(gathered)
            await self._write_lines()
            node = self.verdicts.node
            part = gathered[:ready]
            del gathered[: len(part)]
            try:
                accepted = await write_apart(self._store, node, part, write, now)
            except BaseException as error:
                self._most = max(1, len(part) // 2)
                if node == self.verdicts.node:  # after the others: it may be what breaks them
                    gathered.extend(part)
                away = isinstance(error, StoreUnavailable) and not error.answered
                if away or not isinstance(error, Exception):
                    raise
                return error
            # Not twice as much: that would fail every second time where only little fits.
            self._most = min(_BATCH, self._most + 1 + self._most // 4)
            if refused := len(part) - accepted:
                self.refused += refused
                log.warning(
                    "%d outcomes were refused: the jobs' leases had moved on, or they were written "
                    "before", refused,
                )  # fmt: skip
        return None

    def _first_part(self, gathered: Sequence[AnyWrite]) -> int:
        """Return how many of the first fit into one statement: at least one."""
        count = min(len(gathered), self._most)
        most_bytes = max(_BYTES * self._most // _BATCH, 1)
        size = 0
        for number in range(count):
            size += gathered[number].size
            if size > most_bytes and number:
                return number
        return count

    async def _write_lines(self) -> None:
        if self._logs is None or not self._logs.pending:
            return
        try:
            await self._logs.flush()
        except StoreUnavailable as error:
            # Lines that can't be written must not keep jobs running for ever.
            self._lines_failed += 1
            if not error.answered or self._lines_failed < _PATIENCE_WITH_LINES:
                raise
            log.warning("writing outcomes before the log lines of their jobs: %s", error)
        else:
            self._lines_failed = 0

    async def _flush_lazily(self, closable: int) -> None:
        """Write what can wait a second: progress, and which batches are closed."""
        if monotonic() < self._lazy_at:
            return
        self._lazy_at = monotonic() + _LAZY_SECONDS
        await self._save_progress()
        # The reaper has to know of the batches of what isn't written yet, if we die now.
        unwritten = self.verdicts.tokens()
        closed = [token for token in self._closed[:closable] if token not in unwritten]
        if closed:
            await self._store.batches.close(self.verdicts.node, closed)
            gone = set(closed)
            self._closed = [token for token in self._closed if token not in gone]

    async def _save_progress(self) -> None:
        if self.progress:
            progress, self.progress = self.progress, {}
            tokens, texts = zip(*progress.values(), strict=True)
            try:
                await self._store.save_progress(self.verdicts.node, list(progress), tokens, texts)
            except StoreUnavailable:
                self.progress = {**progress, **self.progress}  # newer reports count
                raise
            except Exception:
                # Progress is no reason to hold up outcomes.
                log.exception("the progress of %d jobs could not be written", len(progress))
