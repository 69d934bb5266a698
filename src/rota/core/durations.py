"""Durations: their text for users, and the expected durations of tasks."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median
from typing import Literal, TypeAlias

import msgspec

ENOUGH = 20  # runs, before anything is expected or judged
_DEVIATIONS = 4.0
_AT_LEAST = 1.0  # seconds that a single run may take before it is called slow
_SLOWER = 1.5  # times the usual
_AS_USUAL = 1.2
_QUICKER = 0.5
_NOTICEABLE = 0.05  # seconds: that 2 ms became 9 is of no interest


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


class Baseline(msgspec.Struct, frozen=True):
    """The expected duration of a task's runs: the `usual` one, and the longest that is not slow."""

    usual: float
    most: float


Trend: TypeAlias = Literal["slower", "as usual", "quicker", "unclear"]


def learn_baseline(runs: Sequence[float]) -> Baseline:
    """Learn from these durations, which are enough of them."""
    usual = median(runs)
    deviation = fmean(abs(seconds - usual) for seconds in runs)
    return Baseline(usual, max(usual + _DEVIATIONS * deviation, 2 * usual, _AT_LEAST))


def declared_baseline(expected: float) -> Baseline:
    """Return the baseline that a task's author declared."""
    return Baseline(expected, expected)


def judge_trend(runs: Sequence[float], baseline: Baseline, *, declared: bool) -> Trend:
    """Compare the last runs with the baseline, which stays as it is: a slow drift is seen too."""
    if len(runs) < ENOUGH:
        return "unclear"
    recent = median(runs)
    if declared:
        return "slower" if recent > baseline.usual else "as usual"
    if recent >= _SLOWER * baseline.usual and recent - baseline.usual >= _NOTICEABLE:
        return "slower"
    if recent <= _QUICKER * baseline.usual:
        return "quicker"
    return "as usual" if recent <= _AS_USUAL * baseline.usual else "unclear"
