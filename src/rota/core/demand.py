"""Decides how much to claim, and from which lanes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_AHEAD_SECONDS = 0.1


def prefetch(rate: float, limit: int, *, size: int = 0, seconds: float = 0.0) -> int:
    """Return how many jobs to hold beyond the free slots: a tenth of a second's worth.

    Enough that fast jobs never wait for a claim, and none for slow ones, which another worker might
    start sooner. The rate alone does not tell them apart: slow jobs that were started together end
    together, at any rate. So jobs that take longer than this tenth (`seconds`) are held ahead for a
    falling part of the slots (`size`).
    """
    ahead = min(int(rate * _AHEAD_SECONDS), limit)
    if seconds <= _AHEAD_SECONDS:
        return ahead
    return min(ahead, int(size * (_AHEAD_SECONDS / seconds) ** 2))


def split_demand(
    demand: int, lanes: Sequence[str], last_found: Mapping[str, int], turn: int
) -> dict[str, int]:
    """Return how many jobs to ask of each lane; no more than `demand` in all.

    Lanes that had work the last time share it, the others are only looked into. `turn` rotates which
    lanes are asked when there isn't enough for all: each time the next ones. Every other turn belongs to
    those that had work: else most looks of a worker with few slots and many lanes would be in vain.
    """
    if demand <= 0 or not lanes:
        return {}
    busy = [lane for lane in lanes if last_found.get(lane, 0) > 0]
    if demand < len(lanes):
        if busy and turn % 2:
            return _evenly(demand, _rotate(busy, turn // 2 * demand)[:demand])
        ordered = _rotate(lanes, (turn // 2 if busy else turn) * demand)
        return dict.fromkeys(ordered[:demand], 1)
    shares = dict.fromkeys(_rotate(lanes, turn), 1)
    for lane, more in _evenly(demand - len(lanes), _rotate(busy or lanes, turn)).items():
        shares[lane] += more
    return shares


def _evenly(demand: int, lanes: Sequence[str]) -> dict[str, int]:
    each, rest = divmod(demand, len(lanes))
    return {lane: each + (1 if place < rest else 0) for place, lane in enumerate(lanes)}


def _rotate(lanes: Sequence[str], turn: int) -> list[str]:
    start = turn % len(lanes)
    return [*lanes[start:], *lanes[:start]]


def cap_demand(shares: Mapping[str, int], room: Mapping[str, int]) -> dict[str, int]:
    """Reduce the shares to what the queues named in `room` still allow, lane after lane."""
    left = dict(room)
    capped: dict[str, int] = {}
    for lane, slots in shares.items():
        queue = lane.partition("/")[2].partition("#")[0].partition("+")[0]
        allowed = min(slots, left.get(queue, slots))
        if queue in left:
            left[queue] -= allowed
        if allowed > 0:
            capped[lane] = allowed
    return capped
