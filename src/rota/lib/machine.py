"""Memory and CPU that this process may use: of its container, or else of the machine."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 60  # version 1 says "no limit" by a number of about this size


def memory_bytes() -> int:
    """Return the memory that this process may use, in bytes; 0 if that can't be found out."""
    try:
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        machine = 0
    limits = [
        limit
        for folder, file in (
            (_own_group(), "memory.max"),
            (_own_group("memory"), "memory.limit_in_bytes"),
        )
        for limit in _limits(folder, file)
    ]
    return min([limit for limit in (*limits, machine) if limit > 0], default=0)


def cpus() -> float:
    """Return the CPUs that this process may use; a part of one is possible."""
    try:
        usable: float = len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        usable = os.cpu_count() or 1
    for folder in _upwards(_own_group()):
        quota, _, period = _read(folder / "cpu.max").partition(" ")
        if quota.isdigit() and period.isdigit() and int(period):
            usable = min(usable, int(quota) / int(period))
    for folder in _upwards(_own_group("cpu")):
        share, whole = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
        if share.isdigit() and whole.isdigit() and int(whole):
            usable = min(usable, int(share) / int(whole))
    return round(usable, 2)


def _limits(folder: Path | None, file: str) -> list[int]:
    """Return the limits of a group and of those that it is in."""
    texts = [_read(each / file) for each in _upwards(folder)]
    return [int(text) for text in texts if text.isdigit() and int(text) < _NO_LIMIT]


def own_group() -> Path | None:
    """Return the folder of this process's cgroup (version 2), if there is one."""
    return _own_group()


def _own_group(controller: str = "") -> Path | None:
    """Return the folder of this process's group: of version 2, or of a controller of version 1."""
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == controller or (controller and controller in controllers.split(",")):
            root = _CGROUPS / controllers if controller else _CGROUPS
            folder = root / path.lstrip("/")
            return folder if folder.is_dir() else root  # inside a container it may be the root
    return None


def _upwards(folder: Path | None) -> list[Path]:
    if folder is None:
        return []
    return [each for each in (folder, *folder.parents) if each.is_relative_to(_CGROUPS)]


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
