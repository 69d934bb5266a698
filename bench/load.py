"""How busy the machine is before something is measured, so that figures of a busy one aren't published.

The load average of the last minute contains the benchmark's own work. Between two measurements
nothing of the benchmark runs but servers at rest: what the processors do then is done by others,
and that is what counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

LIMIT = 0.3  # processors
PATIENCE = 120.0  # seconds
_LOOK = 2.0  # seconds that one reading takes


class Busy(Exception):
    """Others use the machine, and went on doing so."""


def busy_ticks(text: str) -> int:
    """Ticks in which any processor worked, from the text of /proc/stat."""
    user, nice, system, _idle, _wait, irq, soft, steal, *_ = map(
        int, text.split("\n", 1)[0].split()[1:]
    )
    return user + nice + system + irq + soft + steal


def processors_in_use(seconds: float = _LOOK) -> float:
    """How many processors worked during the next seconds, on average; 100 ticks are a second."""
    stat = Path("/proc/stat")
    before, began = busy_ticks(stat.read_text()), time.monotonic()
    time.sleep(seconds)
    return (busy_ticks(stat.read_text()) - before) / 100 / (time.monotonic() - began)


def wait_until_idle(
    *, force: bool = False, limit: float = LIMIT, patience: float = PATIENCE,
    read: Callable[[], float] = processors_in_use, now: Callable[[], float] = time.monotonic,
) -> float:  # fmt: skip
    """Return how many processors others use, once that is at most the limit. Raise `Busy` if it doesn't
    come to that. With `force` the first reading is returned, whatever it is.
    """
    end = now() + patience
    while (seen := read()) > limit and not force:
        if now() > end:
            raise Busy(
                f"others use {seen:.1f} processors of this machine, and have for {patience:.0f} s; "
                f"at most {limit:g} are allowed. Measure again when it is quiet, or with --force, "
                "which the page says"
            )
    return seen
