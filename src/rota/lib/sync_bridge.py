"""A thread with an event loop, through which synchronous code uses the asynchronous one.

Safe in threads: any number of them may call at the same time. Safe after a fork: the child makes a
thread of its own at its first call, and never touches what belonged to the parent's. The parent's loop
is kept, since destroying it would take its sockets out of the epoll set that both processes share.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, TypeVar

from rota.errors import EventLoopRunning

T = TypeVar("T")

_ENDING = (
    "Rota can't be called any more: the interpreter is ending. Call it before the program ends"
)


class SyncBridge:
    """Started at the first call. One per process: after a fork the child makes its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._of_parents: list[asyncio.AbstractEventLoop] = []
        os.register_at_fork(after_in_child=self._leave_parent)

    def _leave_parent(self) -> None:
        self._lock = threading.Lock()  # another thread of the parent may have held it
        if self._loop is not None:
            self._of_parents.append(self._loop)
            self._loop = None

    def call(
        self, function: Callable[[], Coroutine[Any, Any, T]], verb: str, called: str = "",
        instead: str = "",
    ) -> T:  # fmt: skip
        """Run it there, and wait here.

        `verb`: what those who have an event loop call instead; `called` and `instead`: both in full.
        """
        if asyncio._get_running_loop() is not None:
            raise EventLoopRunning(
                f"{called or f'{verb}_sync()'} would block the event loop that runs in this thread: "
                f"use `await {instead or f'{verb}()'}`, or call it in a thread (asyncio.to_thread)"
            )
        loop = self._running_loop()
        task: asyncio.Task[T] | None = None
        given_up = False

        async def run() -> T:
            nonlocal task
            if given_up:
                raise asyncio.CancelledError
            task = asyncio.current_task()
            return await function()

        def give_up() -> None:
            nonlocal given_up
            given_up = True
            if task is not None:
                task.cancel()

        try:
            return asyncio.run_coroutine_threadsafe(run(), loop).result()
        except BaseException:
            # By Ctrl-C, for one, which may come at any line: nobody waits for it any more.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(give_up)
            raise

    def iterate(
        self,
        function: Callable[[], AsyncIterator[T]],
        verb: str,
        called: str = "",
        instead: str = "",
    ) -> Iterator[T]:
        """Iterate here over what is made there; see `call`."""
        iterator = aiter(function())

        async def following() -> list[T]:
            try:
                return [await anext(iterator)]
            except StopAsyncIteration:
                return []

        while found := self.call(following, verb, called, instead):
            yield from found

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The thread's loop, if there is one."""
        return self._loop

    async def run_on(self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> T:
        """Await it on the loop it belongs to: this one, or the sync_bridge's."""
        if loop is asyncio.get_running_loop():
            return await coroutine
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, loop))

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if sys.is_finalizing():
            raise RuntimeError(_ENDING)  # the thread is frozen by now, and would never answer
        # Without the lock once there is one: a signal handler may call while this thread has it.
        return self._loop or self._started_loop()

    def _started_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                thread = threading.Thread(
                    target=loop.run_forever, name="rota-sync_bridge", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError as error:  # Python 3.12 starts none at its end, nor in atexit
                    loop.close()
                    raise RuntimeError(f"{_ENDING} ({error})") from None
                self._loop = loop
            return self._loop

    def close(self) -> None:
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)


sync_bridge = SyncBridge()
