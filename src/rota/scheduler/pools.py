"""Decides every few seconds how many slots each pool of workers should have.

Protocol. A tick reads the load of a pool, decides (`core/pools.py`) and writes the decision into
the pool's row, if nobody else has meanwhile: two schedulers at once waste work. What autoscalers
read is that row. A crash leaves the decision before. To spare the database, only the owner of the
first shard decides.
"""

from __future__ import annotations

from rota.operations.pools import decide_pool
from rota.runtime.ticker import Service
from rota.scheduler.shards import Ownership
from rota.store.database import Database
from rota.store.pools import PoolStore

_INTERVAL = 5.0


class Pools(Service):
    name = "pools"

    def __init__(self, database: Database, ownership: Ownership) -> None:
        self._store = PoolStore(database)
        self._ownership = ownership

    async def tick(self) -> float:
        if any(grant.shard == 0 for grant in self._ownership.held()):
            for pool in await self._store.list(None):
                await decide_pool(self._store, pool)
        return _INTERVAL
