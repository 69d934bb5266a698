"""The database's time, as well as a node can know it without asking.

A node's own clock is never used: only the monotonic one, to measure how long ago the database reported
its time. The estimate is never ahead of the database's clock, so that nothing starts early:
a reply's moment is taken for the moment of its receipt.
"""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime, timedelta

_SAMPLES = 12
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class DatabaseClock:
    def __init__(self) -> None:
        self._offsets: deque[float] = deque(maxlen=_SAMPLES)
        self._offset: float | None = None

    def observe(self, database_seconds: float, sent: float, received: float) -> None:
        """Take in a reply: the database's time (seconds since 1970) between two monotonic moments."""
        if self._offset is not None and self._offset > database_seconds - sent:
            # Even if the reply took no time on its way back, the estimate is ahead: the database's
            # clock was set back, and earlier replies count no more.
            self._offsets.clear()
        self._offsets.append(database_seconds - received)
        # The largest had the quickest reply, and is still a lower bound.
        self._offset = max(self._offsets)

    @property
    def known(self) -> bool:
        return self._offset is not None

    def database(self, monotonic: float) -> datetime | None:
        """Return the database's time at a monotonic moment; None while it isn't known."""
        if self._offset is None:
            return None
        return _EPOCH + timedelta(seconds=monotonic + self._offset)

    def seconds(self, monotonic: float) -> float | None:
        """Return the database's time at a monotonic moment, in seconds since 1970."""
        return None if self._offset is None else monotonic + self._offset

    def local(self, database_seconds: float) -> float:
        """Return the monotonic moment at which the database's clock surely shows this time."""
        assert self._offset is not None
        return database_seconds - self._offset
