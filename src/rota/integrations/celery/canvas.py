"""Chains, groups and chords with Celery's way to start them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import rota
from rota.integrations.celery.results import RunResult


class Canvas:
    """A composition of calls that runs as a workflow. `part` is Rota's own."""

    def __init__(self, part: Any) -> None:
        self.part = part

    def apply_async(self, *args: Any, **options: Any) -> RunResult:
        """Start it."""
        return RunResult(self.part.start_sync())

    delay = __call__ = apply_async


def _parts(parts: Iterable[Any]) -> list[Any]:
    return [each.part if isinstance(each, Canvas) else each for each in parts]


def _listed(parts: tuple[Any, ...]) -> list[Any]:
    """Return the parts: Celery takes them one by one, or as one iterable."""
    if len(parts) == 1 and isinstance(parts[0], Iterable) and not isinstance(parts[0], Canvas):
        return _parts(parts[0])
    return _parts(parts)


def chain(*parts: Any) -> Canvas:
    """Run calls one after the other; the result of each is the first argument of the next."""
    return Canvas(rota.chain(*_listed(parts)))


def group(*parts: Any) -> Canvas:
    """Run calls side by side. The result is the list of theirs."""
    return Canvas(rota.group(*_listed(parts)))


def chord(header: Iterable[Any], body: Any = None) -> Any:
    """Run calls side by side, then one with the list of their results."""
    if body is None:  # chord(header)(body)
        return lambda callback: chord(header, callback)()
    return Canvas(rota.chord(_parts(header), *_parts([body])))
