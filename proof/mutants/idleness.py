"""Mutants that do everything right, and too late."""

from __future__ import annotations

import asyncio
from typing import Any

from proof.simulation.mutant import Mutant
from proof.simulation.patches import Patches
from rota.worker.slots import Slots, _Places

_REST = 10.0


def _rest_before_the_next(patches: Patches) -> None:
    """A slot that has come free stays idle for a while."""

    def release(self: Slots, work: Any) -> bool:
        places = work.place
        if work in places.running:
            places.size -= 1
            asyncio.get_running_loop().call_later(_REST, wake_up, self, places)
        return honest(self, work)

    def wake_up(self: Slots, places: Any) -> None:
        places.size += 1
        while places.waiting and len(places.running) < places.size:
            following = places.waiting.popleft()[1]
            places.running[following] = None
            self._begin(places.runner, following)

    def measure(self: Any, now: float, limit: int) -> None:
        resting = self.runner.size - self.size
        honest_measure(self, now, limit)
        self.size = self.runner.size - max(resting, 0)

    honest = Slots.release
    patches.set(Slots, "release", release)
    honest_measure = _Places.measure
    patches.set(_Places, "measure", measure)


slot_rests = Mutant(name="a free slot stays idle for 10 s", patch=_rest_before_the_next)
