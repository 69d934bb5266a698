"""Depths of counted queues in the store: one short method per query. functions/quotas.sql decides."""

from __future__ import annotations

import msgspec

from rota.store.database import Store


class Depth(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of a counted queue that have not ended. An empty `queue`: all of its namespace."""

    namespace: str
    queue: str
    jobs: int
    max_depth: int | None
    is_full: bool


class DepthStore(Store):
    async def set_max_depth(self, namespace: str, queue: str, most: int | None) -> None:
        """Set the limit of a queue; of the namespace, if `queue` is empty."""
        await self.database.fetch("set_max_depth", namespace, queue, most)

    async def recount(self, namespace: str, queue: str) -> int | None:
        """Count the jobs of a queue one by one, and return by how much its depth was wrong.

        None: it is not counted, or another process counts it.
        """
        wrong: int | None = await self.database.fetchval("recount_depth", namespace, queue)
        return wrong

    async def postpone_recount(self, namespace: str, queue: str) -> None:
        await self.database.fetch("postpone_recount", namespace, queue)

    async def to_recount(self, limit: int) -> list[tuple[str, str]]:
        return await self._all(tuple[str, str], "depths_to_recount", limit)

    async def to_fold(self) -> list[str]:
        """Return the namespaces in which jobs came or left since their last fold."""
        return await self._all(str, "depths_to_fold")

    async def fold(self, namespace: str) -> bool:
        """Add what came and left to the depths. False: another process does it at the moment."""
        folded: bool = await self.database.fetchval("fold_flow", namespace)
        return folded

    async def report(self, namespace: str) -> list[str]:
        """Record events for queues that were shut or opened, and return their kinds."""
        return await self._all(str, "report_intake", namespace)

    async def settle_lanes(self) -> int:
        """Register the lanes that callers' own transactions have used first."""
        settled: int = await self.database.fetchval("settle_lanes")
        return settled

    async def list(self, namespace: str | None = None) -> list[Depth]:
        return await self._all(Depth, "list_depths", namespace)
