"""Lifespans: resources that an app opens when a worker starts, and closes when it stops.

Protocol. A lifespan is a generator: what is before its ``yield`` is run before the process takes jobs,
what is after it when the last of them has ended. Lifespans are begun in the order of their registration
and ended in reverse, each to its end, whatever others raise. If one raises while it begins, those
before it are ended, and the process doesn't start. At the end each has a limited time. A process that is
killed ends nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from typing import Any, TypeAlias

from rota.errors import ConfigError

log = logging.getLogger("rota.lifespan")

WorkerLifespan: TypeAlias = Callable[["State"], AsyncGenerator[None] | Generator[None, None, None]]
ChildLifespan: TypeAlias = Callable[["State"], Generator[None, None, None]]


class State:
    """Resources of lifespans for handlers, by name: ``ctx.state.pool``. One per app and process."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"state.{name} is not set in this process: set it in a lifespan, `@app.lifespan` for "
            "coroutines and threads, `@app.child_lifespan` for child processes"
        )

    def __repr__(self) -> str:
        return f"<State {', '.join(sorted(vars(self))) or 'empty'}>"


def check_lifespan(function: Any, *, child: bool) -> None:
    """Refuse what is no lifespan, where it is registered."""
    if inspect.isgeneratorfunction(function) or (
        not child and inspect.isasyncgenfunction(function)
    ):
        return
    kinds = "a generator function" if child else "a generator function, async or not,"
    raise ConfigError(
        f"a lifespan is {kinds} of (state) with one `yield`, not {function!r}: what is before the "
        "`yield` is run at the start, what is after it at the end"
    )


class Lifespans:
    """The lifespans that have begun in a worker's process."""

    def __init__(self) -> None:
        self._begun: list[tuple[WorkerLifespan, Any]] = []

    async def begin(self, lifespans: Sequence[WorkerLifespan], state: State) -> None:
        """Begin lifespans. If one raises, those before it are ended."""
        try:
            for lifespan in lifespans:
                made: Any = lifespan
                manager: Any
                if inspect.isasyncgenfunction(lifespan):
                    manager = contextlib.asynccontextmanager(made)(state)
                    await manager.__aenter__()
                else:
                    manager = contextlib.contextmanager(made)(state)
                    manager.__enter__()
                self._begun.append((lifespan, manager))
        except BaseException:
            with contextlib.suppress(Exception):  # what stopped the start is to be told
                await self.end()
            raise

    async def end(self, seconds: float | None = None) -> None:
        """End them, the last begun first, each to its end; then raise what the first raised.

        One that takes longer than `seconds` is cancelled: a process that was asked to stop must.
        """
        raised: BaseException | None = None
        while self._begun:
            lifespan, manager = self._begun.pop()
            limit = asyncio.timeout(seconds)
            try:
                async with limit:
                    await _end(manager)
            except BaseException as error:  # noqa: BLE001 - the others must be ended, too
                if limit.expired() and isinstance(error, TimeoutError):
                    log.error("lifespan %s did not end within %g s", _name_of(lifespan), seconds)
                else:
                    raised = raised or error
        if raised is not None:
            raise raised


async def _end(manager: Any) -> None:
    # Without the exception of another lifespan: it isn't theirs, and would skip what follows `yield`.
    if isinstance(manager, contextlib.AbstractAsyncContextManager):
        await manager.__aexit__(None, None, None)
    else:
        manager.__exit__(None, None, None)


def _name_of(lifespan: Any) -> str:
    return getattr(lifespan, "__qualname__", None) or repr(lifespan)


def begin_in_child(
    lifespans: Sequence[ChildLifespan], state: State
) -> list[contextlib.AbstractContextManager[None]]:
    """Begin lifespans in a child process. Give the answer to `end_in_child`."""
    begun: list[contextlib.AbstractContextManager[None]] = []
    try:
        for lifespan in lifespans:
            manager = contextlib.contextmanager(lifespan)(state)
            manager.__enter__()
            begun.append(manager)
    except BaseException:
        with contextlib.suppress(Exception):
            end_in_child(begun)
        raise
    return begun


def end_in_child(begun: list[contextlib.AbstractContextManager[None]]) -> None:
    """End lifespans, the last begun first, each to its end; then raise what the first raised."""
    raised: BaseException | None = None
    while begun:
        try:
            begun.pop().__exit__(None, None, None)
        except BaseException as error:  # noqa: BLE001 - the others must be ended, too
            raised = raised or error
    if raised is not None:
        raise raised
