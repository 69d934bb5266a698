"""A cgroup for each child process, where this node may make some: version 2, in a subtree of its own.

A service manager delegates a subtree to a unit (`Delegate=yes`), and a container runtime may. A group
that has groups with limits in it must hold no process: so the node moves itself into one, once, and only
when nobody else is in its group. Where any of it fails, there are no groups, and children limit
themselves.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
from pathlib import Path

from rota.lib.machine import own_group

log = logging.getLogger("rota.runners.process")

_OURS = "rota-node"


class Group:
    """The group of one child."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        # What is over the limit is killed, with all that it started, and not swapped out.
        for name, value in (("memory.swap.max", "0"), ("memory.oom.group", "1")):
            with contextlib.suppress(OSError):
                (folder / name).write_text(value)

    def limit(self, mib: int) -> None:
        (self.folder / "memory.max").write_text(str(mib << 20))

    def add(self, pid: int) -> None:
        (self.folder / "cgroup.procs").write_text(str(pid))

    def was_over(self) -> bool:
        """Return whether the system has killed something in it for its memory."""
        with contextlib.suppress(OSError, ValueError):
            for line in (self.folder / "memory.events").read_text().splitlines():
                name, _, count = line.partition(" ")
                if name == "oom_kill":
                    return int(count) > 0
        return False

    def peak(self) -> int | None:
        """Return the most that it has used, in bytes; None: the system doesn't tell."""
        with contextlib.suppress(OSError, ValueError):
            return int((self.folder / "memory.peak").read_text())
        return None

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            self.folder.rmdir()


class Groups:
    """The subtree of this node."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._numbers = itertools.count(1)

    def make(self) -> Group | None:
        try:
            return Group(self._base / f"rota-child-{os.getpid()}-{next(self._numbers)}")
        except OSError as error:
            log.warning("no cgroup could be made for a child process: %s", error)
            return None


def open_groups(base: Path | None = None) -> Groups | None:
    """Return the subtree of this node's own group; None: it has none that it may use."""
    base = own_group() if base is None else base
    if base is None:
        return None
    if base.name == _OURS:  # moved there before, by another runner of this process
        return Groups(base.parent)
    try:
        if "memory" not in (base / "cgroup.controllers").read_text().split():
            return None
        inside = (base / "cgroup.procs").read_text().split()
        if inside != [str(os.getpid())] or not os.access(base, os.W_OK):
            return None
        ours = base / _OURS
        ours.mkdir(exist_ok=True)
        (ours / "cgroup.procs").write_text(str(os.getpid()))
        try:
            (base / "cgroup.subtree_control").write_text("+memory")
        except OSError:
            (base / "cgroup.procs").write_text(str(os.getpid()))
            raise
    except OSError:
        return None
    return Groups(base)
