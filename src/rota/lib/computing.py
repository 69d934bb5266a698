"""The place where schedules are compiled and expanded, which may take a while.

By default that is where they are asked for. A server, whose loop serves everybody, puts something else
in its place (`rota.server.calculation`). Nothing that is computed may touch the loop or a connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

T = TypeVar("T")


class Spend(Protocol):
    """Hands on items for as long as the computation may go on, and raises when it may not."""

    def __call__(self, items: Iterable[T], /) -> Iterator[T]: ...


class Compute(Protocol):
    async def __call__(self, work: Callable[[Spend], T], /) -> T: ...


def unlimited(items: Iterable[T]) -> Iterator[T]:
    return iter(items)


async def compute_here(work: Callable[[Spend], T]) -> T:
    return work(unlimited)
