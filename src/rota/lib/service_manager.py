"""Tells systemd that the program is up, that it stops, and that its event loop still turns.

The protocol is one datagram per message to the socket in NOTIFY_SOCKET. Without it, nothing happens.
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress


def notify(message: str) -> None:
    """Send a message such as READY=1. A service manager that is away is no failure of ours."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return
    address = "\0" + path[1:] if path.startswith("@") else path
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.sendto(message.encode(), address)


def watchdog_seconds() -> float | None:
    """Return how often systemd wants to hear from this process; None: it doesn't watch it."""
    wanted, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID")
    if not wanted.isdigit() or pid not in (None, str(os.getpid())):
        return None
    return int(wanted) / 1_000_000 / 2 or None


async def keep_alive(seconds: float) -> None:
    """Report from the event loop, for ever: when the loop is stuck, the reports end."""
    while True:
        notify("WATCHDOG=1")
        await asyncio.sleep(seconds)
