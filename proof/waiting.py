"""Waits for what other processes and tasks bring about. Tests use it as well."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def eventually(
    ask: Callable[[], T | Awaitable[T]], seconds: float = 60, what: str = "it"
) -> T:
    """Ask again and again until the answer is true, and return it.

    Raises AssertionError after `seconds` without a true answer.
    """
    end = time.monotonic() + seconds
    while True:
        answer = ask()
        if isinstance(answer, Awaitable):
            answer = await answer
        if answer:
            return answer
        assert time.monotonic() < end, f"{what} didn't happen within {seconds:.0f} s"
        await asyncio.sleep(0.02)
