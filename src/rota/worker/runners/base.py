"""What all runners have in common: the work they are given, and the one way they answer."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from time import monotonic
from typing import Any, Literal, Protocol, TypeAlias
from uuid import UUID

import msgspec

from rota.core.rank import due_of
from rota.lib.capture import Line, Recorder
from rota.lib.encryption import Encryptor
from rota.model import Guarantee, Outcome

# timeout: the job's own; maximum: that of its queue or of the installation; heartbeat: no sign of life.
StopReason: TypeAlias = Literal["timeout", "maximum", "heartbeat", "cancel", "shutdown", "lease"]


class LogBook(Protocol):
    """Where what handlers say is kept. May be called from any thread."""

    def open(self, work: Work) -> Recorder: ...

    def take(self, work: Work, lines: Sequence[Line]) -> None:
        """Lines that another process has recorded."""
        ...


class Work(msgspec.Struct, eq=False):
    """One claimed job on its way through a runner. Made once per attempt, so it is kept light."""

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
    lane: str = ""  # where it was claimed from
    encryptor: Encryptor | None = None  # what encrypts its result: its payload was encrypted
    started: float = 0.0  # monotonic seconds; 0.0: not started
    stopping: StopReason | None = None  # why the runner was asked to stop it
    handle: Any = None  # the runner's own (an asyncio.Task, a child process)
    place: Any = None  # the worker's own: where it runs or waits
    queue: str | None = None  # the worker's own: the queue whose limit it counts against
    span: Any = None  # of its run, when it is traced
    book: LogBook | None = None  # where its log is kept; None: nowhere
    recorder: Recorder | None = None  # of what it says; None: nothing so far
    heartbeat_timeout: float | None = None  # how long it may go without a sign of life
    alive: float = 0.0  # monotonic seconds of its last sign of life; 0.0: none since its start
    maximum: str = ""  # the maximum run time that it exceeded, in words

    @property
    def due_at(self) -> datetime:
        return due_of(self.rank, self.priority)

    def due_stop(self, now: float) -> StopReason | None:
        """Why it must be stopped now; None: it need not."""
        if not self.started:
            return None
        if self.timeout is not None and now - self.started >= self.timeout:
            return "timeout"
        silent_for = self.heartbeat_timeout
        if silent_for is not None and now - max(self.started, self.alive) >= silent_for:
            return "heartbeat"
        return None

    def note_life(self) -> None:
        """Its handler gave a sign of life. May be called from any thread."""
        self.alive = monotonic()

    def said(self, stream: str, text: str) -> None:
        """Its handler printed or logged something."""
        if self.recorder is not None:
            self.recorder.write(stream, text)
        elif self.book is not None:
            self.book.open(self).write(stream, text)

    def decoded_headers(self) -> Mapping[str, Any]:
        return msgspec.json.decode(self.headers) if self.headers else {}


# What a handler asks of its node while it runs: a name and a JSON body, answered by a JSON body.
NodeCall: TypeAlias = Callable[[Work, str, bytes], Coroutine[Any, Any, bytes]]
Done: TypeAlias = Callable[[Work, Outcome], None]


class Runner(Protocol):
    """Runs work and reports each exactly once through the `done` it was made with.

    Everything happens on the event loop's thread; no method but start and stop may block or await.
    """

    async def start(self) -> None: ...

    def capacity(self) -> int:
        """How many works it runs at a time."""
        ...

    def run(self, work: Work) -> None:
        """Start it, or keep it for the next free place. Sets `work.started` when it really starts."""
        ...

    def stop_work(self, work: Work, reason: StopReason) -> None:
        """Ask it to stop, and see to it that it does. Its outcome still comes through `done`."""
        ...

    def withdraw(self, work: Work) -> bool:
        """Take back work that has not started: True, and `done` will not be called for it."""
        ...

    async def stop(self) -> None:
        """End everything that this runner started. All works have been reported or withdrawn."""
        ...
