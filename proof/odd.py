"""What handlers may do that nobody thought of: results, exceptions and delays.

Each is chosen by a number, so that a repeated attempt of a job does the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Never

from rota import Retry


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
    lambda: {"a", "b"},
    lambda: b"\xff\xfe",
    _cycle,
    lambda: lambda: None,
    lambda: {"rota": "sealed", "error": {"type": "x"}},
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
