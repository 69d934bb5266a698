"""The wait of a caller that was told to try again later."""

from __future__ import annotations

from time import monotonic

from rota.lib.ids import unit

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0


class Patience:
    """The pauses between attempts, for `seconds` in all; None: for as long as it takes.

    They grow, up to what the refusal says, and differ between those who wait, so that many of them don't
    come back at once.
    """

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else monotonic() + seconds
        self._bound = _FIRST_PAUSE

    def pause(self, retry_after: float | None) -> float | None:
        """Return the seconds to wait for the next attempt. None: it is over, or no wait would help."""
        if retry_after is None:
            return None
        wait = min(self._bound, retry_after, _LONGEST_PAUSE) * (0.5 + unit())
        self._bound *= 2
        if self._end is None:
            return wait
        left = self._end - monotonic()
        return None if left <= 0 else min(wait, left)
