"""Statements that everything waits for, and that waited for somebody who only reads: there must be none.

A statement may wait behind a reader for a moment, behind somebody who gives up soon. It counts if it is
behind one from the beginning, and still is after a second: by then it may wait for something else, for
the slow commit of whoever was before it.
"""

from __future__ import annotations

from typing import Protocol

from proof.simulation.engine import Backend, Engine
from proof.simulation.network import Network

_LONG = 1.0
_NEVER = {
    "claim", "mark_started", "begin_scheduled", "finish_succeeded", "finish_ended", "finish_retried",
    "give_back", "submit_jobs", "submit_made", "heartbeat", "fire", "release",
}  # fmt: skip


class Waiter(Protocol):
    """A session, whose call waits."""

    call: object
    backend: Backend | None


class HeldUp:
    def __init__(self, engine: Engine, network: Network) -> None:
        self._engine = engine
        self._network = network
        self.found: list[str] = []

    def watch(self, waiter: Waiter, name: str) -> None:
        """From the moment at which this statement of it has to wait for a lock."""
        if name in _NEVER and self._is_behind_reader(waiter):
            self._network.after(_LONG, self._look, waiter, waiter.call, name)

    def _look(self, waiter: Waiter, call: object, name: str) -> None:
        if waiter.call is call and self._is_behind_reader(waiter):
            self.found.append(f"{name} waited {_LONG:g} s behind somebody who only reads")

    def _is_behind_reader(self, waiter: Waiter) -> bool:
        return waiter.backend is not None and self._engine.waits_for_reader(waiter.backend)
