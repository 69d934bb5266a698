"""Where a claimer stopped in each lane, so that it doesn't read again what it has passed.

A cursor only ever skips; what may lie behind it is found again in three ways: a hint names the lowest
rank that was added; a sweep from the start comes by, not more often than once a second and at most a
twentieth of the time (behind an old transaction's dead rows a sweep can be slow); and an idle worker
always sweeps.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

import msgspec

from rota.store.work import LOWEST_RANK, NIL, LaneClaim

_SWEEP_EVERY = 1.0
_SWEEP_SHARE = 20


class _Lane(msgspec.Struct):
    rank: int = LOWEST_RANK
    id: UUID = NIL
    next_sweep: float = 0.0
    hinted: int | None = None  # the lowest rank that a hint named since the last claim


class Cursors:
    def __init__(self) -> None:
        self._lanes: dict[str, _Lane] = {}

    def lower(self, lane: str, rank: int) -> None:
        """A hint: something was added at this rank."""
        place = self._lanes.setdefault(lane, _Lane())
        if place.hinted is None or rank < place.hinted:
            place.hinted = rank

    def wish(self, lane: str, slots: int, now: float) -> LaneClaim:
        """A claim from where to go on, or from the start when a sweep is due."""
        place = self._lanes.setdefault(lane, _Lane())
        if place.hinted is not None and place.hinted <= place.rank:
            place.rank, place.id = (
                place.hinted - 1 if place.hinted > LOWEST_RANK else LOWEST_RANK,
                NIL,
            )
        place.hinted = None
        if now >= place.next_sweep:
            place.rank, place.id = LOWEST_RANK, NIL
        return LaneClaim(lane, slots, place.rank, place.id)

    def advance(self, wishes: Iterable[LaneClaim], rows: Iterable[tuple[str, int, UUID]],
                sent: float, now: float) -> None:  # fmt: skip
        """After a claim that was sent then and answered now, with (lane, rank, id) of what it got."""
        for wish in wishes:
            if wish.rank == LOWEST_RANK:
                pause = max(_SWEEP_EVERY, (now - sent) * _SWEEP_SHARE)
                self._lanes[wish.lane].next_sweep = now + pause
        for lane, rank, id in rows:
            place = self._lanes[lane]
            if (rank, id) > (place.rank, place.id):
                place.rank, place.id = rank, id

    def sweep_all(self) -> None:
        """The next claims start from the beginning."""
        for place in self._lanes.values():
            place.next_sweep = 0.0

    def next_sweep(self) -> float:
        return min((place.next_sweep for place in self._lanes.values()), default=0.0)
