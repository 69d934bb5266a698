"""Remembers where claims stopped in each lane, so that rows that were passed aren't read again.

A cursor only ever skips; rows before it are found again in three ways: a hint names the lowest
rank that was added; a sweep from the start comes by, not more often than once a second and at most a
twentieth of the time (an old transaction's dead rows can make a sweep slow); and no worker comes to
rest before it has swept. Hints don't reach all workers: a worker that goes on claiming finds what is
more urgent by its sweeps, within about a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

import msgspec

from rota.store.work import LOWEST_RANK, NIL, LaneClaim

_SWEEP_EVERY = 1.0
_SWEEP_SHARE = 20


class _Lane(msgspec.Struct):
    rank: int = LOWEST_RANK
    id: UUID = NIL
    next_sweep: float = 0.0
    before: tuple[int, UUID] = (LOWEST_RANK, NIL)  # where it was when a sweep began
    hinted: int | None = None  # the lowest rank that a hint named since the last claim
    emptied: bool = False  # the last claim was a sweep, and took all there was
    more: bool = False  # the last claim got all that it asked for, or a hint came after it


class Cursors:
    def __init__(self) -> None:
        self._lanes: dict[str, _Lane] = {}

    def lower(self, lane: str, rank: int) -> None:
        """Take in a hint: a job was added at this rank."""
        place = self._place(lane)
        place.more = True
        if place.hinted is None or rank < place.hinted:
            place.hinted = rank

    def wish(self, lane: str, slots: int, now: float) -> LaneClaim:
        """Return a claim from the cursor, or from the start when a sweep is due."""
        place = self._place(lane)
        if place.hinted is not None and place.hinted <= place.rank:
            place.rank, place.id = max(place.hinted - 1, LOWEST_RANK), NIL
        place.hinted = None
        if now >= place.next_sweep:
            if place.rank > LOWEST_RANK:  # or a wish before this one was not used
                place.before = place.rank, place.id
            place.rank, place.id = LOWEST_RANK, NIL
        return LaneClaim(lane, slots, place.rank, place.id)

    def advance(self, wishes: Iterable[LaneClaim], rows: Iterable[tuple[str, int, UUID]],
                found: Mapping[str, int], sent: float, now: float) -> None:  # fmt: skip
        """Move the cursors after a claim that was sent then and answered now.

        `rows` has (lane, rank, id) of the last job from each lane.
        `found` has the number of jobs from each lane.
        """
        for wish in wishes:
            place = self._lanes[wish.lane]
            swept = wish.rank == LOWEST_RANK
            place.more = found[wish.lane] >= wish.slots
            place.emptied = swept and not place.more
            if swept:
                place.next_sweep = now + max(_SWEEP_EVERY, (now - sent) * _SWEEP_SHARE)
                if not found[wish.lane]:  # what it has passed needn't be read again either
                    place.rank, place.id = place.before
        for lane, rank, id in rows:
            place = self._lanes[lane]
            if (rank, id) > (place.rank, place.id):
                place.rank, place.id = rank, id

    def sweep_all(self) -> None:
        """Let the next claims start from the beginning."""
        for place in self._lanes.values():
            place.next_sweep = 0.0
            place.emptied = False

    def next_sweep(self, lanes: Iterable[str]) -> float:
        """Return when the next sweep of one of these lanes may be made; infinity if none is pending."""
        pending = (place.next_sweep for lane in lanes if not (place := self._place(lane)).emptied)
        return min(pending, default=float("inf"))

    def may_have_more(self, lanes: Iterable[str]) -> bool:
        """Return whether there may be something in one of these lanes that no claim has looked for."""
        return any(self._place(lane).more for lane in lanes)

    def _place(self, lane: str) -> _Lane:
        return self._lanes.setdefault(lane, _Lane())
