"""Which rows of `bench.growth` may grow, why, and how far."""

from __future__ import annotations

import re
from typing import NamedTuple

from bench.growth_probes import Probe


class Bound(NamedTuple):
    """What a row may grow to: so many pages, or so many times, and for a reason."""

    kind: str
    names: str  # a regular expression
    why: str
    pages: float | None = None  # at most so many of a look, at any size
    ratio: float | None = None  # at most so many times with ten times as much

    def holds(self, probe: Probe) -> bool:
        return probe.kind == self.kind and re.fullmatch(self.names, probe.name) is not None


BOUNDS: tuple[Bound, ...] = ()


def bound_of(probe: Probe) -> Bound | None:
    return next((bound for bound in BOUNDS if bound.holds(probe)), None)
