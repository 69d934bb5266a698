"""Selects the shards that a service of a scheduler works on: its own, and now and then all others."""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic
from typing import Protocol

from rota.scheduler.coordination import Grant

# A shard without an owner delays nothing for longer than this.
SWEEP_EVERY = 0.5


class Ownership(Protocol):
    """The shards of a scheduler, as far as its services need to know them."""

    def held(self) -> list[Grant]: ...

    def others(self) -> list[int]: ...

    def lost(self, shards: Iterable[int]) -> None: ...


class ShardSelection:
    """Selects shards for each tick."""

    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership
        self._sweep_at = 0.0

    def next(self) -> tuple[list[int], list[int | None]]:
        """Return shards, and the epoch under which each is ours; None: it isn't, and is swept."""
        held = self._ownership.held()
        shards, epochs = [grant.shard for grant in held], [grant.epoch for grant in held]
        if (now := monotonic()) < self._sweep_at:
            return shards, [*epochs]
        self._sweep_at = now + SWEEP_EVERY
        others = self._ownership.others()
        return [*shards, *others], [*epochs, *(None for _ in others)]


class AllShards:
    """Owns all shards, as they are before any scheduler took one: for tests and `rota.testing`."""

    def __init__(self, count: int) -> None:
        self._all = [Grant(shard, 0) for shard in range(count)]

    def held(self) -> list[Grant]:
        return self._all

    def others(self) -> list[int]:
        return []

    def lost(self, shards: Iterable[int]) -> None:
        """Do nothing: nobody else is there to have taken them."""
