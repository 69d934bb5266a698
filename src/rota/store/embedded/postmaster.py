"""Reading of ``postmaster.pid``, and a check whether it is still true.

The file outlives a crash or a reboot, and by then its process id may belong to some other program.
PostgreSQL itself would refuse to start beside any living process of that id and the same user, so
it is on us to look who that is, and to remove what a dead server left.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# The lines of the file that matter here, counted from 0.
_PID, _PORT, _SOCKET_DIR, _STATUS = 0, 3, 4, 7


@dataclass(frozen=True, slots=True)
class Postmaster:
    pid: int
    port: str
    socket_dir: Path | None  # None while it has not got that far
    status: str  # starting, ready, stopping

    @property
    def has_lost_its_socket(self) -> bool:
        """Return whether it runs without its socket, as after a clean-up of /tmp."""
        return self.status == "ready" and not (
            self.socket_dir and (self.socket_dir / f".s.PGSQL.{self.port}").exists()
        )

    def ask_to_stop(self) -> None:
        """Begin a fast shutdown: sessions are ended, everything is written."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGINT)


def read_postmaster(pgdata: Path) -> Postmaster | None:
    """Read the file; None if there is none, or if it is only being written."""
    try:
        lines = (pgdata / "postmaster.pid").read_text(errors="surrogateescape").splitlines()
        pid = int(lines[_PID])
    except (FileNotFoundError, NotADirectoryError, IndexError, ValueError):
        return None
    line = dict(enumerate(text.strip() for text in lines))
    socket_dir = line.get(_SOCKET_DIR)
    return Postmaster(
        # The sign tells a single-user server, which is none of ours.
        pid=abs(pid),
        port=line.get(_PORT, ""),
        socket_dir=Path(socket_dir) if socket_dir else None,
        status=line.get(_STATUS, "starting"),
    )


def living_postmaster(pgdata: Path, argument: str) -> Postmaster | None:
    """Return the running server of this data folder, recognised by an argument that only it has."""
    postmaster = read_postmaster(pgdata)
    if postmaster is None or not is_running_with(postmaster.pid, argument):
        return None
    return postmaster


def is_running_with(pid: int, argument: str) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):
        return False  # gone, or another user's: either way not the server we started
    command = _command_line(pid)
    # Where nothing tells, believe the file: to wait in vain is better than two servers.
    return command is None or os.fsencode(argument) in command


def _command_line(pid: int) -> bytes | None:
    """Return a process's command line; empty for one that has ended and was not yet reaped."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        pass  # no /proc on this system, or the process has just ended
    try:
        ps = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
        return subprocess.run(ps, capture_output=True, check=False).stdout  # noqa: S603
    except OSError:
        return None


def forget_dead_server(pgdata: Path, socket_dir: Path, port: int) -> None:
    """Remove the traces that would keep a new server from starting. Only when none is running."""
    socket_file = socket_dir / f".s.PGSQL.{port}"
    for trace in (pgdata / "postmaster.pid", socket_file, Path(f"{socket_file}.lock")):
        trace.unlink(missing_ok=True)
