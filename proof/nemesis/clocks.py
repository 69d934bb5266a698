"""Wall clocks that are wrong, by libfaketime.

Protocol. A process is started with the library and the name of a file that says by how much its wall
clock is off. Whoever writes the file moves the clock while the process runs. Only the wall clock: the
monotonic clock, by which the run writes its history, stays true.
"""

from __future__ import annotations

import glob
from pathlib import Path

_LIBRARIES = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib/faketime/libfaketimeMT.so.1")


def find_library() -> str | None:
    return next((path for pattern in _LIBRARIES for path in glob.glob(pattern)), None)


class WallClock:
    """The wall clock of one process, wrong by `always`, and by more while it is shifted."""

    def __init__(self, library: str, file: Path, always: int = 0) -> None:
        self._library = library
        self._file = file
        self.always = always
        self.shift(0)

    def shift(self, seconds: int) -> None:
        seconds += self.always
        draft = self._file.with_suffix(".new")
        draft.write_text(f"{seconds:+d}\n")
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
