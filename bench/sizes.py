"""What a workload is, and how much of it there is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.ground import Arena

WARM = 3_000_000  # numbers from here on belong to jobs that only warm up
Stats = dict[str, float]


@dataclass(frozen=True)
class Size:
    """How much: a quick look, or a measurement."""

    seconds: float = 3.0  # that a round of throughput should take
    latencies: int = 400
    herd: int = 100_000
    patience: float = 90.0
    schedules_minute: int = 10_000
    schedules_second: int = 1_000
    ticks: int = 10
    held_jobs: int = 1_000
    stored: int = 100_000
    growth: tuple[int, ...] = (10_000, 10_000_000)
    million: int = 1_000_000


QUICK = Size(0.3, 20, 2_000, 30.0, 100, 50, 3, 100, 5_000, (1_000, 100_000), 10_000)


@dataclass(frozen=True)
class Workload:
    name: str
    title: str
    run: Callable[[Arena, Size], Stats]
    unit: str
    headline: str  # the figure that the table and the plot show
    higher_is_better: bool = True
    tier: str = "core"  # core: always; full: with --full; growth: with --growth
    alone: bool = False  # measured of Rota alone
