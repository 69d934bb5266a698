"""Warns of jobs that no live node can fit, when they are submitted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import Any

from rota.core.explain_room import explain_unfit
from rota.store.rows import lane_name

_KEPT_SECONDS = 5.0
_MOST_KEPT = 1_000

# Reads the facts of a lane, in a namespace: `JobStore.machines_of_lane`.
Read = Callable[[str, str], Awaitable[dict[str, Any]]]


class RoomWarnings:
    """Remembers what it has found for a few seconds."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, str | None]] = {}

    async def about(
        self, read: Read, namespace: str, queue: str | None, needs: Sequence[str] | None
    ) -> tuple[str, ...]:
        """Return a warning if there are live workers, and none can fit a job with these needs."""
        asked = tuple(need for need in needs or () if len(need) > 1)
        if not any("=" in need and not need.startswith("~") for need in asked):
            return ()
        lane = lane_name(namespace, queue or "default", asked)
        until, warning = self._known.get(lane, (0.0, None))
        if until < monotonic():
            facts = {"lane": lane, **await read(namespace, lane)}
            unfit = explain_unfit(facts)
            warning = None if unfit is None else unfit[1][0].lower() + unfit[1][1:].rstrip(".")
            if len(self._known) >= _MOST_KEPT:
                self._known.clear()
            self._known[lane] = (monotonic() + _KEPT_SECONDS, warning)
        return () if warning is None else (warning,)
