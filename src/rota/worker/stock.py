"""Counts what jobs hold of this node's resources, and decides what a claim may take.

Protocol: docs/architecture.md, "Resources". All of it is in memory and dies with the node. A job holds
its amounts from the moment its claim was answered until its slot is free again. Without lanes that ask
for resources or nearness nothing here is called.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from time import monotonic

from rota.core import resources
from rota.core.resources import Amounts, Room, Running, Shape, shape_of_lane
from rota.runtime.lanes import ServedQueues
from rota.runtime.work import Work

_NEVER = float("inf")
_LATE = 0.01  # seconds after the moment from which on a job may be claimed
_PRESSED = 200  # lanes that are looked into at a time for jobs that have not fitted for long
_NEWEST = 0.2  # the weight of the last run in the mean of its task


class Stock:
    def __init__(self, served: ServedQueues) -> None:
        self._served = served
        self.capacity: Amounts = served.resources
        self.free: Amounts = dict(served.resources)
        self.shapes: dict[str, Shape] = {}  # of the lanes that ask for resources or nearness
        self.reserved: str | None = None  # the lane that this node makes room for
        self.held: dict[Work, Amounts] = {}
        self._lasting: set[Work] = set()  # started since the reservation, beside what is reserved
        self._bounds: dict[str, Room] = {}  # of the last claim
        self._looks: dict[str, float] = {}  # by lane that is near to others: when to look into it
        self._means: dict[str, float] = {}  # by task, seconds
        self._pressed_from = 0

    @property
    def used(self) -> Amounts:
        return resources.minus(self.capacity, self.free)

    def note_lanes(self, lanes: Iterable[str]) -> None:
        special = {lane for lane in lanes if "=" in lane}
        if special != self.shapes.keys():
            self.shapes = {lane: shape_of_lane(lane) for lane in special}
            self._looks = {
                lane: self._looks.get(lane, 0.0)
                for lane, shape in self.shapes.items()
                if self._served.is_far(shape)
            }

    # -- what a claim may take

    def open_lanes(self, lanes: Iterable[str]) -> list[str]:
        """Return the lanes of which something may start now."""
        now = monotonic()
        reserved_in = self._reserved_in(now)
        return [
            lane
            for lane in lanes
            if (shape := self.shapes.get(lane)) is None
            or (
                self._looks.get(lane, 0.0) <= now
                and self._room(
                    lane, shape, 1, self.free, self._lasting_amounts(), reserved_in
                ).count
            )
        ]

    def cap(self, shares: Mapping[str, int]) -> dict[str, int]:
        """Reduce the shares to what fits, all lanes together. The reserved lane comes first."""
        free, lasting = self.free, self._lasting_amounts()
        reserved_in = self._reserved_in(monotonic())
        reserved = self.reserved
        if reserved in self.shapes and resources.fits(free, self.shapes[reserved].amounts):
            shares = {reserved: 1, **shares}
        self._bounds = {}
        capped: dict[str, int] = {}
        for lane, slots in shares.items():
            shape = self.shapes.get(lane)
            if shape is None:
                capped[lane] = slots
                continue
            room = self._room(lane, shape, slots, free, lasting, reserved_in)
            if room.count <= 0:
                continue
            capped[lane] = room.count
            self._bounds[lane] = room
            free = resources.minus(free, shape.amounts, room.count)
            if room.within is None and lane != reserved:
                for _ in range(room.count):
                    lasting = resources.plus(lasting, shape.amounts)
        return capped

    def bound_of(self, lane: str) -> tuple[float, float | None] | None:
        """Return how long jobs of a lane must have waited to be claimed now, and their longest timeout.

        None: there is no bound.
        """
        shape = self.shapes.get(lane)
        if shape is None:
            return None
        room = self._bounds.get(lane)
        within = None if room is None else room.within
        if not self._served.is_far(shape):
            return None if within is None else (0.0, within)
        return shape.near_seconds, within

    def _room(
        self, lane: str, shape: Shape, most: int, free: Amounts, lasting: Amounts,
        reserved_in: float | None,
    ) -> Room:  # fmt: skip
        if not shape.amounts:
            return Room(most)
        if self.reserved is None or self.reserved not in self.shapes:
            return Room(resources.how_many(free, shape.amounts, most))
        if lane == self.reserved:
            return Room(resources.how_many(free, shape.amounts, 1))
        room = resources.backfill(
            self.capacity, free, self.shapes[self.reserved].amounts, lasting, shape.amounts,
            reserved_in, most,
        )  # fmt: skip
        # Claims from sublanes know no bound of the timeout.
        return Room(0) if room.within is not None and lane.endswith("#") else room

    def _reserved_in(self, now: float) -> float | None:
        if self.reserved is None or self.reserved not in self.shapes:
            return None
        running = [
            Running(amounts, resources.expected_end(
                now - work.started if work.started else 0.0, work.timeout, self._means.get(work.task)))
            for work, amounts in self.held.items()
        ]  # fmt: skip
        return resources.free_in(self.free, running, self.shapes[self.reserved].amounts)

    def _lasting_amounts(self) -> Amounts:
        total: Amounts = {}
        for work in self._lasting:
            total = resources.plus(total, self.held[work])
        return total

    # -- what is held

    def take(self, work: Work) -> bool:
        """Let a claimed job hold its amounts. False: it doesn't fit, and must not start here."""
        lane = work.lane.partition("#")[0]
        amounts = shape_of_lane(lane).amounts
        if not amounts:
            return True
        if not resources.fits(self.free, amounts):
            return False
        self.free = resources.minus(self.free, amounts)
        self.held[work] = amounts
        if self.reserved is not None:
            if lane == self.reserved.partition("#")[0]:
                self.reserved = None  # the next look removes its row
                self._lasting.clear()
            elif (room := self._bounds.get(lane)) is None or room.within is None:
                self._lasting.add(work)
        return True

    def release(self, work: Work) -> bool:
        """Free what a job held. Return whether it held anything."""
        amounts = self.held.pop(work, None)
        if amounts is None:
            return False
        self._lasting.discard(work)
        self.free = resources.plus(self.free, amounts)
        if work.started:
            ran = monotonic() - work.started
            mean = self._means.get(work.task, ran)
            self._means[work.task] = mean + _NEWEST * (ran - mean)
        return True

    def amounts_of(self, work: Work) -> Amounts:
        return self.held.get(work, {})

    # -- reservations

    def pressed(self, patience: float) -> list[str]:
        """Return lanes that this node could serve, and that don't fit what is free; of many, others each
        time. One that is near to others only if they have had their time when its patience is over."""
        lanes = [
            lane
            for lane, shape in sorted(self.shapes.items())
            if shape.amounts and not resources.fits(self.free, shape.amounts)
            and not (self._served.is_far(shape) and shape.near_seconds > patience)
        ]  # fmt: skip
        if len(lanes) <= _PRESSED:
            return lanes
        start = self._pressed_from = (self._pressed_from + _PRESSED) % len(lanes)
        kept = [lane for lane in lanes if lane == self.reserved]
        return [*kept, *[*lanes[start:], *lanes[:start]][:_PRESSED]]

    def reserve(self, lane: str | None) -> None:
        if lane != self.reserved:
            self.reserved = lane
            self._lasting.clear()

    # -- lanes that are near to others

    def hinted(self, lane: str) -> None:
        """Take in a hint: a job has just become ready there."""
        if lane in self._looks:
            at = monotonic() + self.shapes[lane].near_seconds + _LATE
            self._looks[lane] = (
                min(self._looks[lane], at) if self._looks[lane] > monotonic() else at
            )

    def looked(self, lane: str, found: int, asked: int, peers: float) -> None:
        """Note a look into a lane that is near to others: when to look again."""
        if lane in self._looks:
            pause = max(self.shapes[lane].near_seconds, peers, 0.5)
            self._looks[lane] = 0.0 if found >= asked else monotonic() + pause

    def next_look(self) -> float:
        """Return the seconds until a lane that is near to others is to be looked into."""
        if not self._looks:
            return _NEVER
        now = monotonic()
        return max(min(self._looks.values()) - now, _LATE)
