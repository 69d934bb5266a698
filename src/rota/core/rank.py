"""The order of claims in a lane: the same numbers as rota.rank() computes in SQL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_EPOCH_SECONDS = _EPOCH.timestamp()
_MICROSECOND = timedelta(microseconds=1)
_PRIORITY_STEP = 60_000_000  # microseconds of waiting that a point of priority is worth


def rank_of(due_at: datetime, priority: int) -> int:
    return (due_at - _EPOCH) // _MICROSECOND - priority * _PRIORITY_STEP


def due_seconds(rank: int, priority: int) -> float:
    """Return the moment that led to this rank, in seconds since 1970."""
    return _EPOCH_SECONDS + (rank + priority * _PRIORITY_STEP) / 1_000_000


def due_of(rank: int, priority: int) -> datetime:
    """Return the moment that led to this rank."""
    # Multiplied: a timedelta that is made of that many microseconds takes longer.
    return _EPOCH + (rank + priority * _PRIORITY_STEP) * _MICROSECOND
