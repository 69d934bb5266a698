"""Heartbeats on the node's own loop: without threads, and on no time but the loop's."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any


class LoopHost:
    """Replaces `rota.runtime.heartbeat.HeartbeatThread` by a task."""

    def __init__(self) -> None:
        self.stopping = False
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def begin(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._task = asyncio.create_task(run(), name="rota-heartbeat")

    def call(self, callback: Callable[..., Any], *arguments: Any) -> None:
        asyncio.get_running_loop().call_soon(callback, *arguments)

    def watch(self) -> None:
        """Do nothing: the loop that would be silent is this one."""

    async def rest(self, seconds: float) -> bool:
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._stop.wait()
        return True

    async def stop(self) -> None:
        self.stopping = True
        self._stop.set()
        if self._task is not None:
            await self._task
