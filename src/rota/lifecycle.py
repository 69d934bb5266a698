"""What an app opens when a worker starts, and closes when it stops: pools, models, clients.

Protocol. A lifespan is a generator: what is before its ``yield`` is run before the process takes jobs,
what is after it when the last of them has ended. Lifespans are begun in the order of their registration
and ended in reverse. If one raises while it begins, those before it are ended, and the process doesn't
start. A process that is killed ends nothing.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from typing import Any, TypeAlias

from rota.errors import ConfigError

WorkerLifespan: TypeAlias = Callable[["State"], AsyncGenerator[None] | Generator[None, None, None]]
ChildLifespan: TypeAlias = Callable[["State"], Generator[None, None, None]]


class State:
    """What lifespans leave for handlers, by name: ``ctx.state.pool``. One per app and process."""

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


async def begin(lifespans: Sequence[WorkerLifespan], state: State) -> contextlib.AsyncExitStack:
    """Begin lifespans in a worker's process. Closing the stack ends them."""
    stack = contextlib.AsyncExitStack()
    try:
        for lifespan in lifespans:
            if inspect.isasyncgenfunction(lifespan):
                manager = contextlib.asynccontextmanager(lifespan)(state)
                await stack.enter_async_context(manager)
            else:
                plain: Any = lifespan
                stack.enter_context(contextlib.contextmanager(plain)(state))
    except BaseException:
        await stack.aclose()  # each to its end: the exception isn't theirs
        raise
    return stack


def begin_in_child(lifespans: Sequence[ChildLifespan], state: State) -> contextlib.ExitStack:
    """The same in a child process."""
    stack = contextlib.ExitStack()
    try:
        for lifespan in lifespans:
            stack.enter_context(contextlib.contextmanager(lifespan)(state))
    except BaseException:
        stack.close()
        raise
    return stack
