"""Writes what handlers print and log, in batches.

Protocol. An attempt's first line makes its recorder; its lines gather here, from any thread, and are
written after a moment, or when their job's outcome is about to be written: whoever sees that a job has
ended finds its lines. Each write is guarded by (job, token, node): lines under a token that has moved on
are refused, and counted. When the database is away lines are kept, up to a limit, then counted.
Dying loses what has gathered since the last write. Nothing waits for this but the outcomes of a node
whose jobs have just written lines.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter, deque
from collections.abc import Sequence
from itertools import islice

from rota.config import Settings
from rota.errors import StoreUnavailable
from rota.lib.capture import MARK, Limits, Line, Recorder
from rota.runtime.heartbeat import Lease
from rota.runtime.ticker import Service
from rota.runtime.work import Work
from rota.store.driver_errors import is_bad_value
from rota.store.logs import LogStore, NewLogLine, log_field

log = logging.getLogger("rota.log_writer")

_BATCH = 1_000
_GATHER = 0.2  # seconds that lines wait for more
_IDLE = 60.0
_MOST = 50_000  # lines kept while they can't be written


class LogWriter(Service):
    name = "log_writer"

    def __init__(self, store: LogStore, settings: Settings, lease: Lease) -> None:
        self._store = store
        self._namespace = settings.namespace
        self._limits = Limits(settings.log_bytes, settings.log_lines_per_second)
        self._lease = lease
        self._pending: deque[NewLogLine] = deque()
        self._lost: Counter[Work] = Counter()
        self._most = _BATCH  # lines in one statement: fewer after one that could not be written
        self._opening = threading.Lock()
        self._writing = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._woken = False  # since the last line was written
        self.refused = 0

    # -- called by runners, from any thread

    def open(self, work: Work) -> Recorder:
        """Return the work's recorder; made with its first line."""
        with self._opening:
            if work.recorder is None:
                work.recorder = Recorder(self._limits, lambda line: self._add(work, line))
            return work.recorder

    def take(self, work: Work, lines: Sequence[Line]) -> None:
        """Add lines that a child process recorded, within its limits."""
        for line in lines:
            self._add(work, line)

    def _add(self, work: Work, line: Line) -> None:
        if len(self._pending) >= _MOST:
            self._lost[work] += 1
            return
        if self._lost and (lost := self._lost.pop(work, 0)):
            # In the number of the last line that was left out: nothing else has it.
            text = f"… {lost:,} lines left out: they could not be written in time"
            self._pending.append(self._to_stored(work, Line(line.seq - 1, line.at, MARK, text)))
        self._pending.append(self._to_stored(work, line))
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self.wake)

    # -- writing

    @property
    def pending(self) -> int:
        return len(self._pending)

    async def tick(self) -> float:
        if not self._pending:
            self._woken = False
            # Once more: a thread may have added between the look and the note.
            return 0.0 if self._pending else _IDLE
        await asyncio.sleep(_GATHER)
        await self.flush()
        return 0.0

    async def flush(self) -> None:
        """Write everything that has gathered so far."""
        async with self._writing:
            left = len(self._pending)
            while left > 0 and self._pending:
                count = min(left, self._most, len(self._pending))
                try:
                    await self._write(list(islice(self._pending, count)))
                except StoreUnavailable:
                    self._most = max(1, count // 2)  # it may have been too much at a time
                    raise
                self._most = min(_BATCH, self._most * 2)
                for _ in range(min(count, len(self._pending))):
                    self._pending.popleft()
                left -= count

    async def _write(self, lines: list[NewLogLine]) -> None:
        try:
            refused = await self._store.add(self._lease.node_id, self._namespace, lines)
        except StoreUnavailable:
            raise
        except Exception as error:
            if len(lines) > 1 and is_bad_value(error):
                # One that can't be written must not take the others with it.
                half = len(lines) // 2
                await self._write(lines[:half])
                await self._write(lines[half:])
            else:
                log.exception("%d log lines of jobs could not be written", len(lines))
            return
        if refused:
            self.refused += refused
            log.warning("log lines of %d attempts were refused: their leases moved on", refused)

    def _to_stored(self, work: Work, line: Line) -> NewLogLine:
        # Its moment is fixed here: written twice, it must be the same line.
        at = self._lease.clock.database(line.at)
        text = line.text
        if work.encryptor is not None:
            text = work.encryptor.text(log_field(work.token, line.seq), text)
        return NewLogLine(work.id, work.token, work.attempt, line.seq, at, line.stream, text)

    def forget(self) -> None:
        """Forget all lines: this node was declared dead, and they would be refused."""
        self._pending.clear()
        self._lost.clear()
