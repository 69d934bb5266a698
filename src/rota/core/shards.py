"""Assigns shards to schedulers: even shares, and few moves when a node comes or goes.

Every scheduler decides alone, from what it sees. Two that see the same decide the same; two that see
different things try to take the same shard for a moment, and only one of them gets it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID


class Moves(NamedTuple):
    take: list[int]
    give: list[int]


def assign(
    shards: Sequence[int], members: Sequence[UUID], owners: Mapping[int, UUID]
) -> dict[int, UUID]:
    """Return an owner for every shard. Shares differ by one at most, and few shards move."""
    if not members:
        return {}
    held: dict[UUID, list[int]] = {member: [] for member in members}
    for shard in shards:
        owner = owners.get(shard)
        if owner in held:
            held[owner].append(shard)
    share, larger = divmod(len(shards), len(members))
    # Those who have most already get the larger shares: they then have least to give away.
    ranked = sorted(members, key=lambda member: (-len(held[member]), member))
    quotas = {member: share + (place < larger) for place, member in enumerate(ranked)}
    assigned = {s: member for member in ranked for s in held[member][: quotas[member]]}
    free = iter([shard for shard in shards if shard not in assigned])
    for member in ranked:
        for _ in range(quotas[member] - min(len(held[member]), quotas[member])):
            assigned[next(free)] = member
    return assigned


def moves_of(
    me: UUID, shards: Sequence[int], members: Sequence[UUID], owners: Mapping[int, UUID]
) -> Moves:
    """Return the shards that this node should take because nobody holds them, and those to hand over."""
    assigned = assign(shards, members, owners)
    take = [s for s in shards if assigned.get(s) == me and s not in owners]
    give = [s for s in shards if owners.get(s) == me and assigned.get(s) != me]
    return Moves(take, give)
