"""Durable functions that are plain functions: each runs in a thread, and its context waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from rota.durable.branches import Interrupted
from rota.durable.context import DurableContext, Losers
from rota.durable.operations import Operation
from rota.lifecycle import State

T = TypeVar("T")


class SyncDurableContext:
    """Given to durable functions that are plain functions. The same as `DurableContext`, without
    awaiting: each method returns when it is done. For `gather` and `race`, give functions without
    parameters that call the context's methods through `ctx.later`."""

    def __init__(self, context: DurableContext, thread: _Thread) -> None:
        self._context = context
        self._thread = thread
        self.run_id: UUID = context.run_id
        self.version: int = context.version
        self.job = context.job

    def _do(self, work: Operation[Any] | Coroutine[Any, Any, Any]) -> Any:
        return self._thread.wait_for(work)

    def options(self, **given: Any) -> SyncDurableContext:
        """See `DurableContext.options`."""
        return SyncDurableContext(self._context.options(**given), self._thread)

    @property
    def later(self) -> DurableContext:
        """The methods as operations, which are done by `gather` and `race`."""
        return self._context

    def step(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """See `DurableContext.step`."""
        return self._do(self._context.step(work, *args, **kwargs))

    def call(self, work: Any, /, *args: Any, **kwargs: Any) -> Any:
        """See `DurableContext.call`."""
        return self._do(self._context.call(work, *args, **kwargs))

    def sleep(self, seconds: float | str) -> None:
        """See `DurableContext.sleep`."""
        self._do(self._context.sleep(seconds))

    def sleep_until(self, moment: datetime) -> None:
        """See `DurableContext.sleep_until`."""
        self._do(self._context.sleep_until(moment))

    def wait(
        self, signal: str, *, key: str | None = None, timeout: float | str | None = None
    ) -> Any:
        """See `DurableContext.wait`."""
        return self._do(self._context.wait(signal, key=key, timeout=timeout))

    def gather(self, *works: Operation[Any], return_exceptions: bool = False) -> list[Any]:
        """Do several operations of `later` at the same time: see `DurableContext.gather`."""
        done: list[Any] = self._do(
            self._context.gather(*works, return_exceptions=return_exceptions)
        )
        return done

    def race(self, *works: Operation[Any], losers: Losers = "cancel") -> tuple[int, Any]:
        """Do several operations of `later` until one has ended: see `DurableContext.race`."""
        done: tuple[int, Any] = self._do(self._context.race(*works, losers=losers))
        return done

    def now(self) -> datetime:
        """See `DurableContext.now`."""
        return self._context.now()

    def random(self) -> float:
        """See `DurableContext.random`."""
        return self._context.random()

    def uuid(self) -> UUID:
        """See `DurableContext.uuid`."""
        return self._context.uuid()

    def patched(self, name: str) -> bool:
        """See `DurableContext.patched`."""
        return self._context.patched(name)

    def set_status(self, status: Any) -> None:
        """See `DurableContext.set_status`."""
        self._do(self._context.set_status(status))

    def restart(self, **given: Any) -> None:
        """See `DurableContext.restart`. It doesn't return."""
        self._do(self._context.restart(**given))

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """See `Context.progress`."""
        self._context.progress(done, total, message)

    @property
    def state(self) -> State:
        """See `Context.state`."""
        return self._context.state

    def heartbeat(self) -> None:
        """See `Context.heartbeat`."""
        self._context.heartbeat()


class _Thread:
    """The thread of a plain function, and the line between it and the event loop.

    The thread asks (`wait_for`), the event loop answers (`serve`), one request after the other. So the
    replay sees a plain function as it sees a coroutine: it waits exactly while a request is under way.
    """

    def __init__(self, context: DurableContext) -> None:
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._requests: list[tuple[Any, threading.Event | None, Any]] = []
        self._asked = asyncio.Event()
        self._closed = False

    def wait_for(self, work: Operation[Any] | Coroutine[Any, Any, Any]) -> Any:
        """Do something on the event loop, and return its result. Called in the thread."""
        answered, answer = threading.Event(), []  # type: ignore[var-annotated]
        try:
            self._loop.call_soon_threadsafe(self._ask, (work, answered, answer))
        except RuntimeError as closed:
            raise Interrupted("the worker has stopped") from closed
        answered.wait()
        error, value = answer
        if error is not None:
            raise error
        return value

    def _ask(self, request: Any) -> None:
        if self._closed:
            _, answered, answer = request
            answer[:] = (Interrupted("the function was left"), None)
            answered.set()
            return
        self._requests.append(request)
        self._asked.set()

    def run(self, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
        """Run the function. Called in the thread."""
        try:
            outcome: Any = (None, function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - whatever it raises is its outcome
            outcome = (error, None)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody asks for the outcome
            self._loop.call_soon_threadsafe(self._end, outcome)

    def _end(self, outcome: Any) -> None:
        self._requests.append((None, None, outcome))
        self._asked.set()

    async def serve(self) -> Any:
        """Do what the function asks for, one after the other, until it has ended."""
        try:
            return await self._serve()
        finally:
            self._closed = True
            for request in self._take():
                if request[1] is not None:
                    self._ask(request)

    async def _serve(self) -> Any:
        while True:
            await self._asked.wait()
            self._asked.clear()
            for work, answered, answer in self._take():
                if answered is None:
                    error, value = answer
                    if error is not None:
                        raise error
                    return value
                try:
                    answer[:] = (None, await work)
                except asyncio.CancelledError:
                    answer[:] = (Interrupted("the function was left"), None)
                    raise
                except BaseException as error:  # noqa: BLE001 - raised in the thread
                    answer[:] = (error, None)
                finally:
                    answered.set()

    def _take(self) -> list[Any]:
        taken, self._requests = self._requests, []
        return taken


async def run_in_thread(function: Callable[..., T], args: Any, kwargs: Any) -> T:
    """Run a plain durable function in a thread of its own."""
    args, kwargs = list(args), dict(kwargs)
    context = next(each for each in [*args, *kwargs.values()] if isinstance(each, DurableContext))
    thread = _Thread(context)
    own = SyncDurableContext(context, thread)
    args = [own if each is context else each for each in args]
    kwargs = {name: own if each is context else each for name, each in kwargs.items()}
    # Not one of a pool's: it may wait for as long as the function does.
    threading.Thread(
        target=thread.run, args=(function, args, kwargs), name=context.job.task, daemon=True
    ).start()
    result: T = await thread.serve()
    return result
