"""The branches of a durable function, what they wait for, and the ways in which a function is left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, NamedTuple, Protocol, TypeVar

T = TypeVar("T")


class Watch(Protocol):
    """The object that checks whether all branches wait: see `rota.durable.replay`."""

    branches: set[Branch]

    def look(self) -> None: ...


class Left(BaseException):
    """Leaves a function that does not go on here: `except Exception` must not catch it."""


class Suspended(Left):
    """Its job is suspended, or begins anew: there is nothing left to write."""


class Interrupted(Left):
    """Its job is no longer this node's, or the database is away: the job is given back."""


class Mismatch(Left):
    """The function isn't the one that wrote the history."""


class Wait(asyncio.Future[None]):
    """A wait of a branch for something outside of the function."""

    joined_by: str | None = None
    is_step = False  # one that waits for its next try


class Branch:
    """A coroutine of the function, and what it waits for."""

    def __init__(self, watch: Watch, coroutine: Coroutine[Any, Any, T]) -> None:
        self._watch = watch
        self._coroutine = coroutine
        self.waits_for: Any = None

    @property
    def is_blocked(self) -> bool:
        return isinstance(self.waits_for, Wait) and not self.waits_for.done()

    def __await__(self) -> Generator[Any, Any, Any]:
        watch, coroutine = self._watch, self._coroutine
        watch.branches.add(self)
        step: Callable[[], Any] = lambda: coroutine.send(None)  # noqa: E731 - replaced below
        try:
            while True:
                self.waits_for = step()
                watch.look()
                try:
                    answer = yield self.waits_for
                except BaseException as error:  # noqa: BLE001 - it is the function's to deal with
                    step = _throwing(coroutine, error)
                else:
                    step = _sending(coroutine, answer)
        except StopIteration as end:
            return end.value
        finally:
            watch.branches.discard(self)
            watch.look()


def _sending(coroutine: Coroutine[Any, Any, Any], answer: Any) -> Callable[[], Any]:
    return lambda: coroutine.send(answer)


def _throwing(coroutine: Coroutine[Any, Any, Any], error: BaseException) -> Callable[[], Any]:
    return lambda: coroutine.throw(error)


class FailedAt(NamedTuple):
    """The entry of the history that an exception comes from; a resume begins there. `kept`: entries
    with a higher number that were made beside it, by other branches of a gather, which did not fail."""

    number: int
    kept: frozenset[int] = frozenset()


def failed_at(error: BaseException | None) -> FailedAt | None:
    """Return what an exception comes from, if that is in the history: the first one."""
    found: list[FailedAt] = []
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if (place := getattr(error, "_rota_place", None)) is not None:
            found.append(place)
        error = error.__cause__ or error.__context__
    return min(found, key=lambda place: place.number, default=None)


def fails_at(error: T, place: FailedAt | None) -> T:
    """Return an exception with what it comes from."""
    if place is not None:
        error._rota_place = place  # type: ignore[attr-defined]
    return error
