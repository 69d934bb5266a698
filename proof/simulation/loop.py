"""Virtual time: an event loop that never waits, and processes that can be paused and killed inside it.

Protocol. The loop's time stands still while anything is ready to run, and then jumps to the next timer.
Every handle belongs to the simulated process in whose context it was made. The handles of a paused
process (SIGSTOP) are put aside until it goes on; those of a dead one (SIGKILL) are dropped: its tasks
never run again, nor do their `finally` blocks. They are kept from the garbage collector, which would
run them.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable, Collection
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any

FIRST_MOMENT = 1_000.0
_ROUNDS = 200_000  # at one moment: each statement takes time, so that honest work needs few


class Standstill(Exception):
    """Somebody goes on and on without waiting for anything: the next moment never comes."""


class Process:
    """One life of a simulated process: a restart makes another."""

    def __init__(self, name: str, seed: int | None = None) -> None:
        self.name = name
        self.paused = False
        self.dead = False
        self.random = Random(name if seed is None else f"{seed} {name}")  # its entropy
        self.wall_offset = 0.0  # of its own clock, which nothing may rely on
        self.last_id = 0
        self.aside: list[SimHandle | SimTimer] = []

    def __repr__(self) -> str:
        return f"<Process {self.name}>"


PROCESS: ContextVar[Process | None] = ContextVar("simulated_process", default=None)


def context_of(process: Process | None) -> Context:
    """A context whose tasks and callbacks belong to this process; None: to the world outside."""
    context = copy_context()
    context.run(PROCESS.set, process)
    return context


class SimHandle(events.Handle):
    __slots__ = ("process",)
    process: Process | None

    def _run(self) -> None:
        process = self.process
        if process is None or not (process.paused or process.dead):
            events.Handle._run(self)
        elif not process.dead:
            process.aside.append(self)


class SimTimer(events.TimerHandle):
    __slots__ = ("process",)
    process: Process | None
    _run = SimHandle._run


def _names(handles: Collection[SimHandle | SimTimer]) -> str:
    owners = (getattr(handle._callback, "__self__", None) for handle in handles)  # type: ignore[union-attr]
    tasks = (owner.get_name() for owner in owners if isinstance(owner, asyncio.Task))
    return ", ".join(dict.fromkeys([*(f"{h.process}" for h in handles), *tasks]))


class SimLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self.moment = FIRST_MOMENT
        self._timers: list[tuple[float, int, SimTimer]] = []
        self._rounds = 0  # at this moment
        self._number = 0  # of timers: those of one moment come in the order in which they were made
        self._graves: list[asyncio.Task[Any]] = []

    def time(self) -> float:
        return self.moment

    def _run_once(self) -> None:
        ready: deque[SimHandle | SimTimer] = self._ready  # type: ignore[attr-defined]
        timers = self._timers
        if not ready:
            while timers and timers[0][2].cancelled():
                heapq.heappop(timers)
            if not timers:
                raise RuntimeError("nothing is left to happen: the simulation waits for itself")
            if timers[0][0] > self.moment:
                self.moment = timers[0][0]
                self._rounds = 0
        self._rounds += 1
        if self._rounds > _ROUNDS:
            raise Standstill(
                f"time stands still at {self.moment:.3f}: {_names(ready)} goes on and on"
            )
        while timers and timers[0][0] <= self.moment:
            ready.append(heapq.heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()  # type: ignore[misc] # one function for both kinds

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> SimHandle:
        if context is None:
            context = copy_context()
        handle = SimHandle(callback, args, self, context)
        handle.process = context.get(PROCESS)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> SimTimer:
        if context is None:
            context = copy_context()
        timer = SimTimer(when, callback, args, self, context)
        timer.process = context.get(PROCESS)
        self._number += 1
        heapq.heappush(self._timers, (when, self._number, timer))
        return timer

    def _timer_handle_cancelled(self, handle: Any) -> None:
        """It stays in the heap until its moment."""

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, function: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """At once: a real thread would end at a real moment. One on virtual time takes its time."""
        if (run := getattr(executor, "run_on_loop", None)) is not None:
            answer: asyncio.Future[Any] = run(function, *args)
            return answer
        future = self.create_future()
        try:
            future.set_result(function(*args))
        except Exception as error:  # noqa: BLE001 - handed to whoever awaits it
            future.set_exception(error)
        return future

    # -- processes

    def pause(self, process: Process) -> None:
        process.paused = True

    def resume(self, process: Process) -> None:
        process.paused = False
        aside, process.aside = process.aside, []
        self._ready.extend(aside)  # type: ignore[attr-defined]

    def kill(self, process: Process) -> None:
        process.dead = True
        process.aside.clear()
        self.bury()

    def bury(self) -> None:
        """Keeps all tasks that wait now for ever, so that none is ended by the garbage collector."""
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            self._graves.append(task)
