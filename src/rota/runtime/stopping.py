"""Stop nodes, with a database and without one, on SIGTERM and SIGINT."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal


class Stoppable:
    """Starts, serves until it is asked to stop, and drains.

    Subclasses have `start` and `stop`; what they begin waits for `_stop_at_once` while it drains.
    """

    def __init__(self) -> None:
        self._stop_requests = 0
        self._stop_requested = asyncio.Event()
        self._stop_at_once = asyncio.Event()

    async def start(self) -> None:
        raise NotImplementedError

    async def stop(self) -> None:
        raise NotImplementedError

    def request_stop(self) -> None:
        """Drain; when called again, stop at once; the third time, exit."""
        self._stop_requests += 1
        if self._stop_requests == 1:
            self._stop_requested.set()
        elif self._stop_requests == 2:
            self._stop_at_once.set()
        else:
            os._exit(1)

    async def run(self) -> None:
        """Start, serve until SIGTERM or SIGINT, drain, and stop."""
        loop = asyncio.get_running_loop()
        signals = (signal.SIGTERM, signal.SIGINT)
        for number in signals:
            loop.add_signal_handler(number, self.request_stop)
        try:
            if await self._started_before_a_stop():
                await self._stop_requested.wait()
        finally:
            await self.stop()
            for number in signals:
                loop.remove_signal_handler(number)

    async def _start_when_it_can(self) -> None:
        await self.start()

    async def _started_before_a_stop(self) -> bool:
        """Start, unless a signal comes first: then what has begun is undone."""
        starting = asyncio.create_task(self._start_when_it_can())
        stopping = asyncio.create_task(self._stop_requested.wait())
        await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if starting.done():
            starting.result()
            return True
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await starting
        return False
