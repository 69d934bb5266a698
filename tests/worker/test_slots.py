"""How much a worker claims ahead, by how fast its jobs were."""

from __future__ import annotations

from time import monotonic
from types import SimpleNamespace
from typing import Any

from rota.worker.slots import Slots, _Places


class Ended(SimpleNamespace):
    """A job that ends."""

    __hash__ = object.__hash__


def places() -> Any:
    return _Places(SimpleNamespace(size=10), 0)  # type: ignore[arg-type]


def test_fast_jobs_are_claimed_ahead() -> None:
    own = places()
    for step in range(1, 11):
        own.ended = 100
        own.measure(step * 0.1, 1_000)
    assert own.prefetch == 100  # a tenth of a second's worth of 1,000 a second


def ended(own: Any, jobs: int, seconds: float) -> None:
    for _ in range(jobs):
        work = Ended(started=monotonic() - seconds, place=own, gates=())
        own.running[work] = None
        Slots(None, None).release(work)  # type: ignore[arg-type]


def test_slow_jobs_that_end_together_are_not_taken_for_fast_ones() -> None:
    own = places()
    own.measure(1.0, 1_000)
    ended(own, 100, seconds=0.0)
    own.measure(1.1, 1_000)
    assert own.prefetch > 90
    ended(own, 1_000, seconds=1.0)
    own.measure(1.2, 1_000)
    assert own.prefetch == 0, "another worker might start them sooner"
    ended(own, 1_000, seconds=0.0)
    own.measure(1.3, 1_000)
    assert own.prefetch > 900
