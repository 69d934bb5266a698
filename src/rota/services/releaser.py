"""Releases jobs to workers shortly before they are due.

Protocol. One statement per tick moves what is due within the horizon from `future` to `present`,
skipping rows that another scheduler is moving: any number of releasers are only ever wasteful.
Dying before the commit leaves the rows where they were, after it there is nothing left to do.
"""

from __future__ import annotations

from collections.abc import Sequence

from rota.store.work import UpkeepStore

_BATCH = 5_000


class Releaser:
    name = "releaser"

    def __init__(self, store: UpkeepStore, shards: Sequence[int], interval: float = 0.25) -> None:
        self._store = store
        self._shards = shards
        self._interval = interval

    async def tick(self) -> float:
        released = await self._store.release(self._shards, _BATCH)
        return 0.0 if released == _BATCH else self._interval
