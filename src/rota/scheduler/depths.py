"""Keeps the depths of limited queues, which are shut when they are full and opened when there is room.

Protocol. Whatever brings jobs to a counted queue, or ends them, inserts a row of `flow` in its own
transaction. A tick adds these rows to `depth` and removes them, in one transaction
(`rota.fold_flow`): before its commit nothing has happened, after it nothing is left to do. Submits
fold as well, so that a limit holds while no scheduler runs; of several folds at once one works, and
the others pass by.

Each queue is counted one by one when it gets a limit, a few seconds later (for transactions that
had begun before it), and then every ten minutes, or less often if that takes long. The count and
the depth are read in one snapshot, so that what is folded meanwhile doesn't matter. What it
corrects is in the log.

It also registers the lanes that callers' own transactions have used first (`rota.settle_lanes`). To
spare the database, only the owner of the first shard does all this; who that is matters to nothing
else.
"""

from __future__ import annotations

import logging

from rota.errors import StoreUnavailable
from rota.runtime.ticker import Service
from rota.scheduler.shards import Ownership
from rota.store.database import Database
from rota.store.depths import DepthStore

log = logging.getLogger("rota.depths")

_INTERVAL = 1.0
_RECOUNTS = 5  # in one tick


class Depths(Service):
    name = "depths"

    def __init__(self, database: Database, ownership: Ownership) -> None:
        self._store = DepthStore(database)
        self._ownership = ownership

    async def tick(self) -> float:
        if any(grant.shard == 0 for grant in self._ownership.held()):
            await self.keep()
        return _INTERVAL

    async def keep(self) -> None:
        """Fold, count and report once. Also called by tests."""
        await self._store.settle_lanes()
        for namespace, queue in await self._store.to_recount(_RECOUNTS):
            await self._recount(namespace, queue)
        for namespace in await self._store.to_fold():
            await self._store.fold(namespace)
            await self._store.report(namespace)

    async def _recount(self, namespace: str, queue: str) -> None:
        try:
            wrong = await self._store.recount(namespace, queue)
        except StoreUnavailable as error:
            if not error.answered:
                raise
            # It took too long. The depth stays as good as it is.
            log.warning("can't count the jobs of queue %s/%s: %s", namespace, queue, error)
            await self._store.postpone_recount(namespace, queue)
            return
        if wrong:
            log.info(
                "the depth of queue %s/%s was wrong by %+d, corrected", namespace, queue, wrong
            )
