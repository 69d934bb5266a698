"""How much a worker claims ahead, by how fast its jobs were."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from rota.worker.slots import _Places


def places() -> Any:
    return _Places(SimpleNamespace(size=10), 0)  # type: ignore[arg-type]


def test_fast_jobs_are_claimed_ahead() -> None:
    own = places()
    for step in range(1, 11):
        own.ended = 100
        own.measure(step * 0.1, 1_000)
    assert own.prefetch == 100  # a tenth of a second's worth of 1,000 a second
