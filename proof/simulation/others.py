"""Those who work beside operators and clients, if their moves are chosen, also in a mended cluster."""

from __future__ import annotations

import asyncio
from typing import Any

from proof import machines
from proof.simulation.cluster import Cluster

_ON = 15.0  # virtual seconds that they go on for after healing


class Others:
    def __init__(self, cluster: Cluster, moves: frozenset[str]) -> None:
        self._cluster = cluster
        self.late = cluster.make_late_client() if "keys" in moves else None
        self.large = cluster.make_late_client() if "resources" in moves else None
        self.shares = cluster.make_share_operator() if "shares" in moves else None
        self.drains = cluster.make_drain_operator() if "drains" in moves else None
        self.maps = cluster.make_map_operator() if "maps" in moves else None
        self.sparing = cluster.make_sparing_operator() if "history" in moves else None
        # Two, who submit at the same time.
        unique = [cluster.make_unique_client(number) for number in (1, 2) if "unique" in moves]
        self._all: dict[str, Any] = {
            name: each
            for name, each in (
                ("shares", self.shares), ("drains", self.drains), ("maps", self.maps),
                ("sparing", self.sparing),
                *((f"unique{number}", client) for number, client in enumerate(unique)),
            )
            if each is not None
        }  # fmt: skip
        self._busy: list[asyncio.Task[Any]] = []

    async def begin(self) -> None:
        if self.shares is not None:
            await self._cluster.on_behalf("shares.begin", self.shares.begin())

    def start(self) -> None:
        for name, each in self._all.items():
            self._busy.append(self._cluster.on_behalf(f"{name}.run", each.run()))

    async def mended(self) -> None:
        """What they do in a cluster in which nothing is broken any more; until they have ended."""
        if self.late is not None:  # when it is calm: then every free place must be taken
            after = self._cluster.settings.lease_seconds + 1
            leave = self.late.submit_later(after, {"few": 12, "lonely": 4, "by_customer": 6})
            self._busy.append(self._cluster.on_behalf("keys.leave", leave))
        if self.large is not None:
            after = self._cluster.settings.lease_seconds + 2
            leave = self.large.submit_later(after, machines.LATE)
            self._busy.append(self._cluster.on_behalf("resources.leave", leave))
        if self.shares is not None:
            self.shares.stopping = True
            self._busy.append(self._cluster.on_behalf("shares.leave", self.shares.leave()))
        if self.drains is not None:
            lease = self._cluster.settings.lease_seconds
            leave = self.drains.leave(lease, 2 * lease)
            self._busy.append(self._cluster.on_behalf("drains.leave", leave))
        if self.maps is not None:
            self._busy.append(self._cluster.on_behalf("maps.leave", self.maps.start()))
        if self._all:
            await asyncio.sleep(_ON)
        for each in self._all.values():
            each.stopping = True
        for task in self._busy:
            await task
