"""Durations: how they are written for people, and how long a task usually takes."""

from __future__ import annotations

import msgspec

_ENOUGH = 20  # runs, before anything is expected
_WEIGHT = 0.1
_DEVIATIONS = 4.0
_AT_LEAST = 1.0  # seconds: nobody wants to hear that 2 ms became 9


_ENDLESS = 1e11  # seconds; more than three thousand years, or not a number at all
# The larger unit, the smaller one, and from where the next pair of units is used; in seconds.
_PAIRS = (
    ("min", 60, "s", 1, 3_600),
    ("h", 3_600, "min", 60, 172_800),
    ("d", 86_400, "h", 3_600, None),
)


def format_duration(seconds: float) -> str:
    """Write a duration in its two largest units: '0.2 ms', '4.2 s', '2 h 57 min', '3 d 4 h'.

    It is rounded to the nearest, and something that took time is never shown as nothing.
    """
    seconds = max(float(seconds), 0.0)
    if seconds == 0:
        return "0 s"
    if not seconds < _ENDLESS:
        return "for ever"
    if (milliseconds := seconds * 1000) < 999.5:
        if milliseconds < 0.01:
            return "under 0.01 ms"
        return f"{milliseconds:.0f} ms" if milliseconds >= 9.95 else f"{milliseconds:.2g} ms"
    if seconds < 59.95:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    for large, large_size, small, small_size, end in _PAIRS:
        whole = round(seconds / small_size) * small_size
        if end is None or whole < end:
            first, rest = divmod(whole, large_size)
            second = f" {rest // small_size} {small}" if rest else ""
            return f"{first:,} {large}{second}"
    raise AssertionError("the last pair has no end")


def format_distance(seconds: float) -> str:
    """Say how far a moment is from now: 'in 2 h 57 min', '12 s ago', 'now'."""
    if abs(seconds) < 1:
        return "now"
    told = format_duration(round(abs(seconds)))
    return f"in {told}" if seconds > 0 else f"{told} ago"


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
