"""How long each task usually takes, and so which works may wait inside a child behind another."""

from __future__ import annotations

from math import inf

from rota.model import Guarantee
from rota.runtime.work import Work

# What a child is given ahead of its finishing: enough to keep it busy while results and new works
# travel, and too little for anybody to notice the wait.
AHEAD_SECONDS = 0.005
AHEAD_WORKS = 64

_NEWEST_SHARE = 0.2
_SHORTEST_TIMEOUT = 1.0


class Pace:
    """A moving average of the seconds that each task takes."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def note(self, task: str, seconds: float) -> None:
        if not 0 <= seconds < inf:
            return
        known = self._seconds.get(task, seconds)
        self._seconds[task] = known + (seconds - known) * _NEWEST_SHARE

    def estimate(self, work: Work) -> float:
        """Seconds that it will take; infinite for a work that must have its child to itself.

        It must when its task is long or unknown, when a death of the child that it did not cause
        would cost it dearly, when it is suspected of causing one, or when waiting would eat up
        a short timeout.
        """
        if work.crashes or work.guarantee is not Guarantee.AT_LEAST_ONCE:
            return inf
        if min(work.timeout or inf, work.heartbeat_timeout or inf) < _SHORTEST_TIMEOUT:
            return inf
        seconds = self._seconds.get(work.task, inf)
        return seconds if seconds < AHEAD_SECONDS else inf
