"""Operations on nodes: list, drain and stop them; their shards, and the takeovers of shards."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from rota.errors import Conflict, NotFound
from rota.model import NodeJob, NodeStatus, ShardStatus, Takeover
from rota.operations.base import Operations
from rota.store.rows import split_lane


class Nodes(Operations):
    """`app.nodes`"""

    async def list(self, *, ended: bool = False) -> list[NodeStatus]:
        """List the live nodes; with `ended`, also those that stopped or died within the last day."""
        return await (await self._rota.store()).list_nodes(self._namespace, ended=ended)

    async def get(self, id: UUID) -> NodeStatus:
        """Return one node: live, or ended within the last day."""
        for node in await (await self._rota.store()).list_nodes(self._namespace, ended=True, id=id):
            return node
        raise NotFound(f"there is no node {id} in namespace {self._namespace!r}", subject=id)

    async def drain(self, id: UUID) -> NodeStatus:
        """Ask a node to start no more jobs. What runs there ends; what it holds goes to other nodes.

        It learns of it with its next heartbeat, and goes on after `undrain`, or when it is restarted.
        """
        return await self._wish("drain", id, "drain")

    async def undrain(self, id: UUID) -> NodeStatus:
        """Let a drained node start jobs again."""
        return await self._wish("undrain", id, None)

    async def stop(self, id: UUID) -> NodeStatus:
        """Ask a node to drain and to end its process, as SIGTERM does. It can't be taken back.

        Whatever supervises the process may start it again, as a new node.
        """
        return await self._wish("stop", id, "stop")

    async def _wish(self, action: str, id: UUID, wish: str | None) -> NodeStatus:
        async with self._changing(action, f"node {id}") as change:
            before = await self.get(id)
            if before.remote:
                raise Conflict(
                    f"node {before.name} is a worker over HTTP: its own program decides when it stops",
                    code="remote", subject=id,
                )  # fmt: skip
            database = await self._database()
            if not await database.fetch("set_node_wish", self._namespace, id, wish):
                raise Conflict(
                    f"node {before.name} can't {action}: it is {before.state}"
                    + (" and was asked to stop" if before.wish == "stop" else ""),
                    code="ended", subject=id,
                )  # fmt: skip
            change.before, change.after = {"wish": before.wish}, {"wish": wish}
        return await self.get(id)

    async def running(self, id: UUID, limit: int = 200) -> Sequence[NodeJob]:
        """List the jobs that a node runs now, the oldest first."""
        rows = await (await self._database()).fetch("running_on", self._namespace, id, limit)
        return [
            NodeJob(
                id=row["id"], task=row["task"], state="running", attempt=row["attempt"],
                queue=split_lane(row["lane"])[0], started_at=row["started_at"] or row["claimed_at"],
                finished_at=None,
            )
            for row in rows
        ]  # fmt: skip

    async def shards(self) -> Sequence[ShardStatus]:
        """List the shards, each with the scheduler that owns it."""
        return await (await self._rota.store()).shard_map()

    async def takeovers(self, within: float = 86_400) -> Sequence[Takeover]:
        """List the takeovers of shards in the last `within` seconds, newest first. Kept for a week."""
        return await (await self._rota.store()).recent_takeovers(within)
