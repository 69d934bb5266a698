"""Threads on virtual time: one at a time, and only when the loop lets it.

Protocol. A thread runs until it waits for something; then the loop goes on, and comes back to it when
what it waits for has happened. So nothing depends on real time, although the code in the thread blocks.
Its turns are handles of its process: one that is paused has none, one that was killed never again.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

from proof.simulation.loop import PROCESS, SimLoop, context_of

_THREAD: ContextVar[Turns | None] = ContextVar("simulated_thread", default=None)


class Turns:
    """A thread of a simulated process."""

    def __init__(self, loop: SimLoop, target: Callable[[], None]) -> None:
        self._loop, self._target = loop, target
        self._process = PROCESS.get()
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._waits = 0  # which of its waits it is in: a wake-up for another one is late
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        context = context_of(self._process)

        def run() -> None:
            self._go.acquire()
            _THREAD.set(self)
            self._target()
            self._back.release()

        self._thread = threading.Thread(target=lambda: context.run(run), daemon=True)
        self._thread.start()
        self._loop.call_soon(self._turn, 0, context=context_of(self._process))

    def _turn(self, wait: int) -> None:
        """In the loop: let it run until it waits again."""
        if wait == self._waits:
            self._waits += 1
            self._go.release()
            self._back.acquire()

    def rest(self, seconds: float | None, event: Event | None = None) -> None:
        """In the thread: until the event has happened, or for so long."""
        wait = self._waits
        if seconds is not None:
            moment = self._loop.time() + max(seconds, 0.0)
            self._loop.call_at(moment, self._turn, wait, context=context_of(self._process))
        if event is not None:
            event.waiters.append(lambda: self._wake(wait))
        self._back.release()
        self._go.acquire()

    def _wake(self, wait: int) -> None:
        self._loop.call_soon(self._turn, wait, context=context_of(self._process))


class Event:
    """As `threading.Event`."""

    def __init__(self) -> None:
        self._is_set = False
        self.waiters: list[Callable[[], None]] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        waiters, self.waiters = self.waiters, []
        for wake in waiters:
            wake()

    def wait(self, timeout: float | None = None) -> bool:
        thread = _THREAD.get()
        assert thread is not None, "only threads wait"
        if not self._is_set:
            thread.rest(timeout, self)
        return self._is_set


def sleep(seconds: float) -> None:
    thread = _THREAD.get()
    assert thread is not None, "only threads sleep"
    thread.rest(seconds)


class Executor:
    """As a ThreadPoolExecutor of one thread; the loop asks it (`SimLoop.run_in_executor`)."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._todo: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._news = Event()
        self._thread: Turns | None = None

    def run_on_loop(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        self._todo.append((lambda: function(*args), future))
        if self._thread is None:
            self._thread = Turns(self._loop, self._work)
            self._thread.start()
        self._news.set()
        return future

    def _work(self) -> None:
        while True:
            while not self._todo:
                self._news = Event()
                self._news.wait()
            call, future = self._todo.popleft()
            if future.cancelled():
                continue
            try:
                result = call()
            except Exception as error:  # noqa: BLE001 - handed to whoever awaits it
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)

    def shutdown(self, *, wait: bool = True, cancel_futures: bool = False) -> None:
        """Leave it waiting: it ends with the simulation."""


def module_for(loop: SimLoop) -> SimpleNamespace:
    """What takes the place of the module `threading` in a driver."""

    def make_thread(target: Callable[[], None], name: str, daemon: bool) -> Turns:
        return Turns(loop, target)

    return SimpleNamespace(Thread=make_thread, Event=Event, Lock=threading.Lock)
