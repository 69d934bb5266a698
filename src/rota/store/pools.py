"""Pools of workers in the store. One short method per query."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from rota.core.pools import QueueLoad, Scaling
from rota.store.database import Store


class PoolRow(msgspec.Struct, frozen=True, kw_only=True):
    """A pool as it is stored. `now`: the database's time, in seconds."""

    namespace: str
    name: str
    queues: tuple[str, ...]
    capabilities: tuple[str, ...]
    min_slots: int
    max_slots: int
    slots_per_worker: int
    drain_target: float
    slots: int
    needed: float
    decided_at: datetime | None
    loads: str
    scaling: str | None
    now: float

    def load_list(self) -> list[QueueLoad]:
        return msgspec.json.decode(self.loads, type=list[QueueLoad])

    def last_scaling(self) -> Scaling:
        if self.scaling is None:
            return Scaling(self.slots)
        return msgspec.json.decode(self.scaling, type=Scaling)


class PoolStore(Store):
    async def put(
        self, namespace: str, name: str, queues: Sequence[str], capabilities: Sequence[str],
        min_slots: int, max_slots: int, slots_per_worker: int, drain_target: float,
    ) -> None:  # fmt: skip
        await self.database.fetch(
            "put_pool", namespace, name, list(queues), list(capabilities), min_slots, max_slots,
            slots_per_worker, drain_target,
        )  # fmt: skip

    async def delete(self, namespace: str, name: str) -> bool:
        return bool(await self.database.fetch("delete_pool", namespace, name))

    async def list(self, namespace: str | None, name: str | None = None) -> list[PoolRow]:
        return await self._all(PoolRow, "list_pools", namespace, name)

    async def load(
        self, namespace: str, queues: Sequence[str], capabilities: Sequence[str], target: float
    ) -> Sequence[QueueLoad]:
        """Return the load of the queues that workers with these capabilities serve; none named: all."""
        return await self._all(
            QueueLoad, "pool_load", namespace, list(queues), list(capabilities), target
        )

    async def decide(
        self, pool: PoolRow, needed: float, loads: Sequence[QueueLoad], scaling: Scaling
    ) -> bool:
        """Store a decision, unless another was stored since the pool was read."""
        found = await self.database.fetch(
            "decide_pool", pool.namespace, pool.name, pool.decided_at, scaling.target, needed,
            msgspec.json.encode(loads).decode(), msgspec.json.encode(scaling).decode(),
        )  # fmt: skip
        return bool(found)
