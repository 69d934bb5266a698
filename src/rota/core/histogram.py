"""Histograms of durations: counts by bucket, and what can be told from them.

Bucket 0 is up to a millisecond; each of the next 53 is wider than the one before by the square root of
two, up to about a day; the last has the rest. `rota.bucket()` in SQL is the same: a test compares.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest

FIRST = 0.001
LAST = 54

# The upper bounds of the buckets but the last, which has none.
BOUNDS = [FIRST * 2 ** (place / 2) for place in range(LAST)]


def bucket(seconds: float) -> int:
    """Return the number of the bucket that a duration falls into."""
    return next((place for place, bound in enumerate(BOUNDS) if seconds <= bound), LAST)


def bounds(place: int) -> tuple[float, float | None]:
    """Return from where to where a bucket reaches."""
    return (BOUNDS[place - 1] if place else 0.0), (BOUNDS[place] if place < LAST else None)


def add(histograms: Iterable[Sequence[int]]) -> list[int]:
    """Add up histograms, which may have different lengths."""
    return [sum(counts) for counts in zip_longest(*histograms, fillvalue=0)]


def quantile(counts: Sequence[int], share: float) -> float | None:
    """Estimate a quantile, within the width of its bucket. None without any run."""
    total = sum(counts)
    if not total:
        return None
    wanted, seen = share * total, 0
    for place, count in enumerate(counts):
        if count and seen + count >= wanted:
            low, high = bounds(place)
            if high is None:
                return low
            return low + (high - low) * max(wanted - seen, 0.0) / count
        seen += count
    return bounds(len(counts) - 1)[0]
