"""Mutants of the limits that end handlers which hang."""

from __future__ import annotations

from typing import Any

from proof.simulation.mutant import Mutant
from proof.simulation.patches import Patches
from rota.runtime.work import Work
from rota.worker.run_limits import RunLimits

_MOVES = frozenset({"hung"})


def _ignore_silence(patches: Patches) -> None:
    def due_stop(self: Work, now: float) -> Any:
        reason = honest(self, now)
        return None if reason == "heartbeat" else reason

    honest = Work.due_stop
    patches.set(Work, "due_stop", due_stop)


def _forget_signs(patches: Patches) -> None:
    patches.set(Work, "note_life", lambda self: None)


def _stop_nothing_long(patches: Patches) -> None:
    patches.set(RunLimits, "is_over", lambda self, work, now: False)


silence_ignored = Mutant(
    name="silence of a handler isn't noticed", patch=_ignore_silence, moves=_MOVES
)
signs_forgotten = Mutant(name="signs of life are not counted", patch=_forget_signs, moves=_MOVES)
maximum_ignored = Mutant(
    name="the maximum run time isn't kept", patch=_stop_nothing_long, moves=_MOVES
)
