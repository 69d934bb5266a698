"""Decides how much to claim, and from which lanes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def prefetch(rate: float, limit: int) -> int:
    """Return how many jobs to hold beyond the free slots: a tenth of a second's worth.

    Enough that fast jobs never wait for a claim, and none for slow ones, which another worker might
    start sooner.
    """
    return min(int(rate * 0.1), limit)


def split_demand(
    demand: int, lanes: Sequence[str], last_found: Mapping[str, int], turn: int
) -> dict[str, int]:
    """Return how many jobs to ask of each lane; no more than `demand` in all.

    Lanes that had work the last time share it, the others are only looked into. `turn` rotates which
    lane comes first when there isn't enough for all.
    """
    if demand <= 0 or not lanes:
        return {}
    start = turn % len(lanes)
    ordered = [*lanes[start:], *lanes[:start]]
    if demand <= len(ordered):
        return dict.fromkeys(ordered[:demand], 1)
    shares = dict.fromkeys(ordered, 1)
    busy = [lane for lane in ordered if last_found.get(lane, 0) > 0] or ordered
    each, rest = divmod(demand - len(ordered), len(busy))
    for place, lane in enumerate(busy):
        shares[lane] += each + (1 if place < rest else 0)
    return shares


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
