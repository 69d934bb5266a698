"""Wall clocks that are wrong, by libfaketime.

Protocol. A process is started with the library and the name of a file that says by how much its wall
clock is off. Whoever writes the file moves the clock while the process runs. Only the wall clock: the
monotonic clock, by which the run writes its history, stays true.

The machine's own wall clock, which is the database's, may be set while a run lasts, by whoever keeps it
right. That is no fault of ours, but moments of the database and of the history then differ by more than
before: so it is watched, and written down.
"""

from __future__ import annotations

import asyncio
import glob
import time
from collections.abc import Callable
from pathlib import Path

from proof.history import ClockStep

_LIBRARIES = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib/faketime/libfaketimeMT.so.1")


_LOOK_EVERY = 0.05
_STEP = 0.02  # less is drift


class ClockWatch:
    """Notices when this machine's wall clock is set, and by how much."""

    def __init__(self, on_step: Callable[[ClockStep], None]) -> None:
        self.steps: list[ClockStep] = []
        self._on_step = on_step

    async def watch(self) -> None:
        before = _ahead()
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            now = _ahead()
            if abs(now - before) > _STEP:
                self.steps.append(ClockStep(time.monotonic(), now - before))
                self._on_step(self.steps[-1])
            before = now


def _ahead() -> float:
    return time.time() - time.monotonic()


def find_library() -> str | None:
    return next((path for pattern in _LIBRARIES for path in glob.glob(pattern)), None)


class WallClock:
    """The wall clock of one process, wrong by `always`, and by more while it is shifted."""

    def __init__(self, library: str, file: Path, always: int = 0) -> None:
        self._library = library
        self._file = file
        self.always = always
        self.shift(0)

    def shift(self, seconds: float) -> None:
        seconds += self.always
        draft = self._file.with_suffix(".new")
        draft.write_text(f"{seconds:+.3f}\n")
        draft.chmod(0o644)  # the server is another user
        draft.replace(self._file)  # nobody reads half a line

    @property
    def environment(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": self._library,
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            # Read anew each second; at every single call it would cost more than the cluster does.
            "FAKETIME_CACHE_DURATION": "1",
            "DONT_FAKE_MONOTONIC": "1",
            # Its repair for an old fault of the C library makes threads wait for Python's
            # interpreter lock for seconds, as soon as the clock is wrong.
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        }
