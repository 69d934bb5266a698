"""A claimed job on its way through an attempt."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from time import monotonic
from typing import Any, Literal, Protocol, TypeAlias
from uuid import UUID

import msgspec

from rota.core.rank import due_of
from rota.lib.capture import Line, Recorder
from rota.lib.encryption import Encryptor
from rota.model import Guarantee
from rota.runtime.members import OpenChunk

# timeout: the job's own; maximum: that of its queue or of the installation; heartbeat: no sign of life.
StopReason: TypeAlias = Literal["timeout", "maximum", "heartbeat", "cancel", "shutdown", "lease"]


class LogBook(Protocol):
    """Keeps the output of handlers. May be called from any thread."""

    def open(self, work: Work) -> Recorder: ...

    def take(self, work: Work, lines: Sequence[Line]) -> None:
        """Add lines that another process has recorded."""
        ...


class Work(msgspec.Struct, eq=False):
    """One claimed job. Made once per attempt, so it is kept light.

    The fields up to `step` are those of a claim's row, in its order.
    """

    id: UUID
    task: str
    payload: bytes  # JSON
    token: int
    attempt: int
    max_attempts: int
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    timeout: float | None = None
    crashes: int = 0
    rank: int = 0
    priority: int = 0
    key: str | None = None
    headers: str | None = None  # JSON
    schedule: UUID | None = None
    lane: str = ""
    run: UUID | None = None  # of a workflow, whose step it is
    step: int | None = None
    adopts: Any = None  # its task's options, if what is stored is not what they say: see `mark`
    encryptor: Encryptor | None = None  # encrypts its result: its payload was encrypted
    started: float = 0.0  # monotonic seconds; 0.0: not started
    stopping: StopReason | None = None  # why the runner was asked to stop it
    handle: Any = None  # the runner's own (an asyncio.Task, a child process)
    place: Any = None  # the worker's own: where it runs or waits
    queue: str | None = None  # the worker's own: the queue whose limit it counts against
    gates: Any = ()  # the worker's own: the limits under whose allotments it runs
    span: Any = None  # of its run, when it is traced
    book: LogBook | None = None  # keeps its log; None: nothing is kept
    recorder: Recorder | None = None  # of its output; None: no output so far
    heartbeat_timeout: float | None = None  # how long it may go without a sign of life
    alive: float = 0.0  # monotonic seconds of its last sign of life; 0.0: none since its start
    chunk: OpenChunk | None = None  # of a map, whose members it runs
    lists: Any = None  # of maps over the generator that it runs
    member_began: float = 0.0  # monotonic seconds; of a chunk's current member
    maximum: str = ""  # the maximum run time that it exceeded, in words

    @property
    def due_at(self) -> datetime:
        return due_of(self.rank, self.priority)

    @property
    def began(self) -> float:
        """When what its limits are for began: the attempt, or the member of a chunk that runs."""
        return max(self.started, self.member_began)

    def due_stop(self, now: float) -> StopReason | None:
        """Return why it must be stopped now; None if it need not be."""
        if not self.started:
            return None
        if self.timeout is not None and now - self.began >= self.timeout:
            return "timeout"
        silent_for = self.heartbeat_timeout
        if silent_for is not None and now - max(self.began, self.alive) >= silent_for:
            return "heartbeat"
        return None

    def note_life(self) -> None:
        """Record a sign of life of its handler. May be called from any thread."""
        self.alive = monotonic()

    def said(self, stream: str, text: str) -> None:
        """Record what its handler printed or logged."""
        if self.recorder is not None:
            self.recorder.write(stream, text)
        elif self.book is not None:
            self.book.open(self).write(stream, text)
