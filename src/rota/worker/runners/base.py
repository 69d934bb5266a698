"""The base of all runners, and the parts of a node that runners use."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import Any, ClassVar, Protocol, TypeAlias

import msgspec

from rota.config import Settings
from rota.context import ErrorHook
from rota.lifecycle import State
from rota.model import Outcome
from rota.runtime.work import LogBook, StopReason, Work

Done: TypeAlias = Callable[[Work, Outcome], None]


class Desk(Protocol):
    """The part of a node that serves handlers while they run."""

    state: State  # of the app, in this process

    def report_progress(self, work: Work, progress: bytes) -> None: ...

    async def answer(self, work: Work, name: str, body: bytes) -> bytes:
        """Answer a call of a handler. Both bodies are JSON."""
        ...

    async def transact(self, work: Work, handler: Callable[[Any], Awaitable[Outcome]]) -> Outcome:
        """Run an exactly_once coroutine inside the transaction that also finishes its job."""
        ...


class Channel(msgspec.Struct, eq=False):
    """Passes calls of one handler to its node. This one is for handlers on the event loop.

    Made for every job that has a context: a struct is made in half the time of a class.
    """

    _work: Work
    _desk: Any  # a `Desk`

    @property
    def state(self) -> State:
        found: State = self._desk.state
        return found

    @property
    def cancelled(self) -> bool:
        return self._work.stopping is not None

    def heartbeat(self) -> None:
        self._work.note_life()

    def begin_member(self) -> None:
        """Note that the next member of a chunk begins: limits are for each of them."""
        self._work.member_began = monotonic()

    def progress(self, body: bytes) -> None:
        self._work.note_life()
        self._desk.report_progress(self._work, body)

    def call(self, name: str, body: bytes) -> Any:
        """Return the node's answer: here a coroutine, for plain functions the answer itself."""
        self._work.note_life()
        return self._desk.answer(self._work, name, body)

    def record(self, new: Sequence[Any]) -> asyncio.Future[bool]:
        """Record what a durable function has done, without a task and JSON for each step. The answer:
        its run is being cancelled. Only nodes with a database run such functions."""
        self._work.note_life()
        recorded: asyncio.Future[bool] = self._desk.record(self._work, new)
        return recorded


class NodeParts(msgspec.Struct, frozen=True):
    """The parts of a node that its runners use."""

    settings: Settings
    done: Done  # called with each work that has ended, exactly once
    desk: Desk
    book: LogBook | None = None  # None: the output of handlers is not kept
    error_hooks: Sequence[ErrorHook] = ()


class Runner(ABC):
    """Runs works. Reports the end of each exactly once, through `NodeParts.done`.

    Everything happens on the event loop's thread; no method but start and stop may block or await.
    """

    check_seconds: ClassVar[float] = 0.05  # between two checks of what runs

    def __init__(self, size: int, node: NodeParts) -> None:
        self.size = size  # how many works it runs at a time
        self._node = node
        self._done = node.done
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:  # noqa: B027 - most have nothing to start
        """Start what the runner needs. Raises ConfigError if it can't."""

    @abstractmethod
    def run(self, work: Work) -> None:
        """Start it, or keep it for the next free place. Sets `work.started` when it really starts."""

    @abstractmethod
    def stop_work(self, work: Work, reason: StopReason) -> None:
        """Ask it to stop, and see to it that it does. Its outcome still comes through `done`."""

    async def stop(self) -> None:
        """End everything that this runner started. All works have been reported."""
        if self._timer is not None:
            self._timer.cancel()

    def _check_later(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(self.check_seconds, self._check_now)

    def _check_now(self) -> None:
        self._timer = None
        self._check(monotonic())

    @abstractmethod
    def _check(self, now: float) -> None:
        """Stop works that are over their time. Calls `_check_later` while there is more to check."""
