"""Ends a child process with its parent, and with it what its handlers started.

The lifeline is a pipe whose other end only the parent holds, and which never carries a byte. On
Linux the kernel itself sends SIGKILL to the child's whole process group when that end closes,
even while C code holds the interpreter. Elsewhere the end of the control stream does it.

PR_SET_PDEATHSIG covers a lifeline that is kept open by a process which the parent forked. Its
signal is SIGTERM and not SIGKILL, because a child killed outright could not take its grandchildren
along: the child's handler of SIGTERM looks whether its parent has changed.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import socket
import sys
from types import FrameType
from typing import NoReturn

_PR_SET_PDEATHSIG = 1


def die_with_parent(lifeline: int, parent: int) -> None:
    if sys.platform == "linux":
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        flags = fcntl.fcntl(lifeline, fcntl.F_GETFL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, flags | os.O_ASYNC)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGTERM))
    if os.getppid() != parent:  # it died before this was set up
        kill_own_group()


def kill_own_group() -> NoReturn:
    os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(1)


def ignore(_signum: int, _frame: FrameType | None) -> None:
    """Ignore SIGINT. Not by SIG_IGN, which the programs that a handler starts would inherit."""


def set_free(streams: tuple[socket.socket, ...]) -> None:
    """Drop Rota's signals and streams in a process that a handler forks."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for stream in streams:
        stream.close()
