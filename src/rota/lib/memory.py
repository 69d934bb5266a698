"""Keeps one process within the memory of the work that it runs: by its cgroup, or by RLIMIT_DATA.

The limit is of the whole process: what it had before the work (the interpreter, the app's imports)
counts. RLIMIT_DATA counts what a process may write to and shares with nobody, also what it has not
touched yet. RLIMIT_AS would count what libraries only reserve, and hit those that do no harm.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_MIB = 1 << 20


class MemoryLimit:
    """The limit of this process. `group`: the folder of its own cgroup; None: RLIMIT_DATA."""

    def __init__(self, group: str | None = None) -> None:
        self._group = Path(group) if group else None
        self._before: tuple[int, int] | None = None

    def begin(self, mib: int) -> None:
        if self._group is not None:
            (self._group / "memory.max").write_text(str(mib * _MIB))
            return
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        most = mib * _MIB
        if soft != resource.RLIM_INFINITY and soft <= most:
            return  # somebody has set a narrower one
        self._before = soft, hard
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))

    def end(self) -> None:
        if self._group is not None:
            with contextlib.suppress(OSError):
                (self._group / "memory.max").write_text("max")
        elif self._before is not None:
            import resource

            resource.setrlimit(resource.RLIMIT_DATA, self._before)
            self._before = None


def data_bytes() -> int:
    """Return what RLIMIT_DATA counts of this process; 0 where the system doesn't tell."""
    return _status(os.getpid(), "VmData") * 1024


def resident_bytes(pid: int) -> int:
    """Return the memory that a process has touched; 0 if it is gone, or the system doesn't tell."""
    return _status(pid, "VmRSS") * 1024


def _status(pid: int, field: str) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1])
    return 0
