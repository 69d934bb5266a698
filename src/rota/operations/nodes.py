"""Operations on nodes: list them, the shards they own, and who took shards from whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rota.model import NodeStatus, ShardStatus, Takeover

if TYPE_CHECKING:
    from rota.operations.rota import Rota


class Nodes:
    """`app.nodes`"""

    def __init__(self, rota: Rota) -> None:
        self._rota = rota

    async def list(self, *, ended: bool = False) -> list[NodeStatus]:
        """The live nodes; with `ended`, also those that stopped or died within the last day."""
        store = await self._rota.store()
        return await store.list_nodes(self._rota.namespace, ended=ended)

    async def shards(self) -> Sequence[ShardStatus]:
        """Which scheduler looks after which shard."""
        return await (await self._rota.store()).shard_map()

    async def takeovers(self, within: float = 86_400) -> Sequence[Takeover]:
        """Who took shards from whom in the last seconds, newest first. They are kept for a week."""
        return await (await self._rota.store()).recent_takeovers(within)
