"""The interface of runners: the work they are given, and how they report its outcome."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeAlias

from rota.model import Outcome
from rota.runtime.work import StopReason, Work

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
