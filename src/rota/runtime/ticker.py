"""Runs services. A service is `async tick() -> seconds until the next tick`.

The ticker owns everything around it: waiting, being woken, backing off from errors, stopping. An
error never ends a service: it's logged, and tried again later, so that whatever broke the database
or the connection, work resumes by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable

from rota.errors import StoreUnavailable
from rota.lib.ids import unit
from rota.store.driver_errors import answers

log = logging.getLogger("rota.ticker")

_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 2.5  # with its jitter well below 5 s, the time to recover after a failover


class Service(ABC):
    name: str
    wake: Callable[[], None] = staticmethod(lambda: None)  # set by the ticker: tick soon

    @abstractmethod
    async def tick(self) -> float:
        """Do what is to be done now. Return how many seconds it can then wait unless woken."""


class Ticker:
    """Runs one service until stopped."""

    def __init__(self, service: Service) -> None:
        self.service = service
        service.wake = self.wake
        self._wake = asyncio.Event()
        self._woken = False  # as the event: every job that ends wakes somebody
        self._stopped = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failures = 0
        self._backing_off = False
        self._away = False  # the last failure was the database's

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"rota-{self.service.name}")

    @property
    def failing(self) -> bool:
        """True if the last tick ended with an error."""
        return self._failures > 0

    def wake(self) -> None:
        """Tick now, or right after the tick that is under way."""
        if not self._woken:
            self._woken = True
            self._wake.set()

    async def stop(self) -> None:
        """Let the tick under way end, and start no other."""
        self._stopped.set()
        self._wake.set()
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        while not self._stopped.is_set():
            self._woken = False
            self._wake.clear()
            pause = await self._tick()
            if pause <= 0:
                await asyncio.sleep(0)
            elif self._backing_off:
                # Not shortened by a wake-up: hints would turn a broken database into a busy loop.
                await _wait_for(self._stopped, pause)
            else:
                await _wait_for(self._wake, pause)

    async def _tick(self) -> float:
        answered = answers.get()
        try:
            pause = await self.service.tick()
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - a service never ends by an error
            return self._back_off(error)
        self._backing_off = False
        # A tick that had nothing to ask of the database doesn't know whether it is back.
        if self._failures and (not self._away or answers.get() != answered):
            log.info("%s works again after %d failures", self.service.name, self._failures)
            self._failures = 0
        return pause

    def _back_off(self, error: Exception) -> float:
        self._failures += 1
        self._backing_off = True
        self._away = expected = isinstance(error, StoreUnavailable)
        if self._failures == 1 or self._failures % 20 == 0:
            log.warning("%s: %s", self.service.name, error, exc_info=not expected)
        pause: float = min(_FIRST_PAUSE * 2.0 ** min(self._failures - 1, 8), _LONGEST_PAUSE)
        # Jitter, so that a thousand nodes don't come back in the same moment.
        return pause * (0.5 + unit())


async def _wait_for(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
