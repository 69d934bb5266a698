"""Runs a heartbeat: on a thread of its own, or on its node's loop.

On a thread, user code that blocks the node's loop doesn't hold up heartbeats; the host then notices
the silence (see `Watchdog`). On the node's loop there are no threads and no clock but the loop's: for
programs that run many nodes on one loop, and on a time of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any, TypeAlias

from rota.runtime.watchdog import Watchdog

Heartbeats: TypeAlias = Callable[[], Coroutine[Any, Any, None]]

_CHECK_EVERY = 0.1
_BLOCKED_AFTER = 0.5


class HomeHost:
    """A task on the node's own loop."""

    def __init__(self) -> None:
        self.stopping = False
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def begin(self, run: Heartbeats) -> None:
        """Start the heartbeat."""
        self._task = asyncio.create_task(run(), name="rota-heartbeat")

    def call(self, callback: Callable[..., Any], *arguments: Any) -> None:
        """Call this on the node's loop, soon."""
        asyncio.get_running_loop().call_soon(callback, *arguments)

    def watch(self) -> None:
        """Notice from now on when the node's loop goes silent. Before, the node is starting.

        Here it does nothing: the loop that would be silent is this one.
        """

    async def rest(self, seconds: float) -> bool:
        """Sleep, unless asked to stop. Return False, and early, if the node's loop was just blocked."""
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._stop.wait()
        return True

    async def stop(self) -> None:
        """Ask the heartbeat to end, and wait until it has."""
        self.stopping = True
        self._stop.set()
        if self._task is not None:
            await self._task


class ThreadHost(HomeHost):
    """A thread with a loop of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._home = asyncio.get_running_loop()
        self._watchdog = Watchdog(self._home)
        self._silent = False
        self._watching = False
        self._thread: threading.Thread | None = None
        self._ended = asyncio.Event()

    def begin(self, run: Heartbeats) -> None:
        self._thread = threading.Thread(
            target=self._execute, args=[run], name="rota-heartbeat", daemon=True
        )
        self._thread.start()

    def _execute(self, run: Heartbeats) -> None:
        try:
            asyncio.run(run())
        finally:
            self.call(self._ended.set)

    def call(self, callback: Callable[..., Any], *arguments: Any) -> None:
        try:
            self._home.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            self.stopping = True  # the loop is gone, and so is the node

    def watch(self) -> None:
        self._watching = True

    async def rest(self, seconds: float) -> bool:
        end = monotonic() + seconds
        while not self.stopping and (left := end - monotonic()) > 0:
            if self._watching:
                self._watchdog.check()
                was_silent, self._silent = self._silent, self._watchdog.silence() >= _BLOCKED_AFTER
                if self._silent and not was_silent:
                    return False
            await asyncio.sleep(min(left, _CHECK_EVERY))
        return True

    async def stop(self) -> None:
        self.stopping = True
        if self._thread is not None:
            await self._ended.wait()
            await asyncio.to_thread(self._thread.join)
