"""How long a task usually takes, learned as it runs."""

from __future__ import annotations

import msgspec

_ENOUGH = 20  # runs, before anything is expected
_WEIGHT = 0.1
_DEVIATIONS = 4.0
_AT_LEAST = 1.0  # seconds: nobody wants to hear that 2 ms became 9


class Usual(msgspec.Struct):
    """A moving mean and mean deviation of durations."""

    count: int = 0
    mean: float = 0.0
    deviation: float = 0.0

    def add(self, seconds: float) -> None:
        self.count += 1
        weight = max(_WEIGHT, 1 / self.count)
        error = seconds - self.mean
        self.mean += weight * error
        self.deviation += weight * (abs(error) - self.deviation)

    def limit(self) -> float | None:
        """What a run should not exceed; None while too little is known."""
        if self.count < _ENOUGH:
            return None
        return max(self.mean + _DEVIATIONS * self.deviation, 2 * self.mean, _AT_LEAST)
