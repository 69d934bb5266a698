"""Operations on nodes: list them, their shards, and the takeovers of shards."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from rota.errors import NotFound
from rota.model import NodeStatus, ShardStatus, Takeover
from rota.operations.base import Operations


class Nodes(Operations):
    """`app.nodes`"""

    async def list(self, *, ended: bool = False) -> list[NodeStatus]:
        """List the live nodes; with `ended`, also those that stopped or died within the last day."""
        return await (await self._rota.store()).list_nodes(self._namespace, ended=ended)

    async def get(self, id: UUID) -> NodeStatus:
        """Return one node: live, or ended within the last day."""
        for node in await self.list(ended=True):
            if node.id == id:
                return node
        raise NotFound(f"there is no node {id} in namespace {self._namespace!r}", subject=id)

    async def shards(self) -> Sequence[ShardStatus]:
        """List the shards, each with the scheduler that owns it."""
        return await (await self._rota.store()).shard_map()

    async def takeovers(self, within: float = 86_400) -> Sequence[Takeover]:
        """List the takeovers of shards in the last `within` seconds, newest first. Kept for a week."""
        return await (await self._rota.store()).recent_takeovers(within)
