"""What handlers may do that nobody thought of: results, exceptions and delays.

Each is chosen by a number, so that a repeated attempt of a job does the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any, Never

from rota import App, Context, Retry


class NotEvenAnException(BaseException):
    pass


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("this exception can't say what happened")

    __repr__ = __str__


class Endless(Exception):
    def __str__(self) -> str:
        return "x" * 3_000_000


class Pretender(Exception):
    """Says that it is something else."""

    @property
    def __class__(self) -> type:  # type: ignore[override]
        return ValueError


def _cycle() -> list[Any]:
    cycle: list[Any] = []
    cycle.append(cycle)
    return cycle


VALUES: tuple[Callable[[], Any], ...] = (
    lambda: object(),
    lambda: "a\0b",
    lambda: "\ud800",
    lambda: {"\ud800": ["\0"]},
    lambda: "x" * 3_000_000,
    lambda: "y" * 200_000,
    lambda: float("nan"),
    lambda: float("inf"),
    lambda: 10**400,
    lambda: {1: 2, (3, 4): 5},
    lambda: {"a"},  # one: the order of more depends on the process
    lambda: b"\xff\xfe",
    _cycle,
    lambda: lambda: None,
    lambda: {"rota": "encrypted", "error": {"type": "x"}},
    lambda: ["x"] * 50_000,
    lambda: None,
)

EXCEPTIONS: tuple[Callable[[], BaseException], ...] = (
    lambda: NotEvenAnException("not an Exception"),
    lambda: Speechless(),
    lambda: Endless(),
    lambda: Pretender("who knows"),
    lambda: ValueError("a\0b"),
    lambda: ValueError("\ud800 and more"),
    lambda: type("\ud800", (Exception,), {"__module__": "a\0b"})("odd name"),
    lambda: ExceptionGroup("several", [ValueError("one"), Speechless()]),
    lambda: BaseExceptionGroup("several", [NotEvenAnException("one")]),
    lambda: asyncio.CancelledError("nobody asked for that"),
    lambda: GeneratorExit("nor for that"),
    lambda: TimeoutError(),
    lambda: StopAsyncIteration(),
    lambda: Exception(*range(50_000)),
)

DELAYS: tuple[Any, ...] = (
    1e13, float("inf"), float("nan"), -1.0, -1e300, float("-inf"), 1e300, 0.0, 5e-324, 2**63,
)  # fmt: skip


def value(number: int) -> Any:
    return VALUES[number % len(VALUES)]()


def complain(number: int) -> Never:
    raise _exception(number)


def _exception(number: int) -> BaseException:
    return EXCEPTIONS[number % len(EXCEPTIONS)]()


def ask_for_delay(number: int) -> Never:
    raise Retry.after(DELAYS[number % len(DELAYS)], "an odd moment")


# How a job of these tasks ends. `careful`: nobody knows whether an effect that was cut short happened.
ENDS = {"odd_error": "any", "odd_delay": "any", "careful": "any"}

_FEW = Retry(max_attempts=3, base=0.2)


def add_tasks(
    app: App, attempt: Callable[[Context], AbstractContextManager[None]],
    note_effect: Callable[[Context], None], nap: Callable[[float], Awaitable[None]], queue: str,
) -> None:  # fmt: skip
    """Tasks of all that. `attempt` journals one attempt, `note_effect` an effect under ``once()``, and
    `nap` takes at most so many seconds."""

    @app.task(retry=_FEW)
    async def odd_value(number: int, ctx: Context) -> Any:
        with attempt(ctx):
            await nap(0.2)
            return value(number)

    @app.task(retry=_FEW)
    async def odd_error(number: int, ctx: Context) -> None:
        with attempt(ctx):
            await nap(0.2)
            complain(number)

    @app.task(retry=_FEW, queue=queue)
    async def odd_delay(number: int, ctx: Context) -> None:
        with attempt(ctx):
            await nap(0.2)
            if ctx.attempt == 1:
                ask_for_delay(number)

    @app.task(retry=_FEW)
    async def careful(number: int, ctx: Context) -> None:
        """An effect once for all attempts, whatever it gives back, and whatever comes after it."""

        def effect() -> Any:
            note_effect(ctx)
            return value(number // 2)

        with attempt(ctx):
            await nap(0.1)
            await ctx.once(f"careful-{ctx.job.id}", effect)
            await nap(3 if number % 3 == 0 else 0.1)
            if number % 2 == 0 and ctx.attempt == 1:
                raise ValueError("not yet")
