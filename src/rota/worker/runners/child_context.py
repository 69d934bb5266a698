"""What a handler in a child process knows of its job, and how it speaks to the node."""

from __future__ import annotations

from datetime import datetime
from time import monotonic
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rota.context import encode_progress
from rota.model import Guarantee
from rota.worker.runners.frames import Run

if TYPE_CHECKING:
    from rota.worker.runners.child import Child

_BEAT_SHARE = (
    0.1  # of the time allowed between two signs of life: not more often are they passed on
)


class ChildContext:
    """One per work. Its methods may be called from any thread of the handler."""

    __slots__ = ("_beat_again_at", "_child", "_run", "connection")

    def __init__(self, child: Child, run: Run) -> None:
        self._child = child
        self._run = run
        self._beat_again_at = 0.0  # monotonic
        self.connection: Any = None  # exactly_once: the open transaction, as psycopg's connection

    @property
    def job_id(self) -> UUID:
        return UUID(bytes=self._run.job_id)

    @property
    def task(self) -> str:
        return self._run.task

    @property
    def attempt(self) -> int:
        return self._run.attempt

    @property
    def max_attempts(self) -> int:
        return self._run.max_attempts

    @property
    def token(self) -> int:
        return self._run.token

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(self._run.guarantee)

    @property
    def due_at(self) -> datetime | None:
        return self._run.due_at

    @property
    def key(self) -> str | None:
        return self._run.key

    @property
    def headers(self) -> str | None:
        """JSON."""
        return self._run.headers

    @property
    def cancelled(self) -> bool:
        """True once this job was asked to stop, for whatever reason."""
        return self._child.is_stop_asked(self._run.seq)

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Tell the node how far it is. Doesn't wait; of several in a row the last one counts."""
        self.tell("progress", encode_progress(done, total, message))

    def heartbeat(self) -> None:
        """Give the node a sign of life. It costs next to nothing, however often it is called."""
        allowed = self._run.heartbeat_timeout
        if allowed is not None and (now := monotonic()) >= self._beat_again_at:
            self._beat_again_at = now + allowed * _BEAT_SHARE
            self._child.beat(self._run.seq)

    def tell(self, name: str, body: bytes) -> None:
        """Let the node know something, and don't wait."""
        self._child.tell(self._run.seq, name, body)

    def call(self, name: str, body: bytes) -> bytes:
        """Ask the node and wait for its answer. Raises LeaseLost, or what the node raised."""
        return self._child.call(self._run.seq, name, body)
