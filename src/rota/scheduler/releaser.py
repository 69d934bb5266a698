"""Releases jobs to workers shortly before they are due.

Protocol. One statement per tick moves what is due within the horizon from `future` to `present`: as the
owner of some shards, under their epochs, which the statement checks and locks. An owner whose epoch is
over moves nothing and steps down. Dying before the commit leaves the rows where they were, after it
there is nothing left to do.

What an owner has missed is released by anybody: at every other tick the shards of others are swept for
jobs whose time has come. So a lost shard delays nothing by more than the pause between two sweeps. Rows
that another scheduler is moving are skipped: any number of releasers are only ever wasteful.
"""

from __future__ import annotations

from rota.runtime.ticker import Service
from rota.scheduler.shards import Ownership, ShardSelection
from rota.store.work import UpkeepStore

_BATCH = 5_000
_INTERVAL = 0.25


class Releaser(Service):
    name = "releaser"

    def __init__(self, store: UpkeepStore, ownership: Ownership) -> None:
        self._store = store
        self._ownership = ownership
        self._selection = ShardSelection(ownership)

    async def tick(self) -> float:
        shards, epochs = self._selection.next()
        if not shards:
            return _INTERVAL
        released, lost = await self._store.release(shards, epochs, _BATCH)
        self._ownership.lost(lost)
        return 0.0 if released == _BATCH else _INTERVAL
