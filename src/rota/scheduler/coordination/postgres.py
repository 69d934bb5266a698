"""Coordination by PostgreSQL: one row per shard, judged by the database's clock.

Protocol. A grant is an update of the shard's row: owner, a higher epoch, an expiry. It is made only when
the row has expired or was given up, under a row lock that also waits for nobody: a row that its old
owner's write has locked at this moment is passed over, and asked for again at the next tick. An answer
that was lost is found again: whatever the row says is the owner's, is in the next view.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from rota.scheduler.coordination import Grant, View
from rota.store.database import Database


class PostgresCoordination:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def acquire(self, node: UUID, ttl: float, shards: Sequence[int]) -> list[Grant]:
        rows = await self._database.fetch("take_shards", node, ttl, shards)
        return [Grant(*row) for row in rows]

    async def renew(self, node: UUID, ttl: float) -> View:
        return await self._see(node, ttl, extend=True)

    async def watch(self, node: UUID) -> View:
        return await self._see(node, 0.0, extend=False)

    async def release(self, node: UUID, shards: Sequence[int] | None = None) -> None:
        if shards is None:
            await self._database.fetch("leave_shards", node)
        else:
            await self._database.fetch("give_shards", node, shards)

    async def _see(self, node: UUID, ttl: float, *, extend: bool) -> View:
        rows = await self._database.fetch("see_shards", node, ttl, extend)
        members, shards, epochs, owners = rows[0]
        held = {
            shard: (owner, epoch)
            for shard, epoch, owner in zip(shards, epochs, owners, strict=True)
            if owner is not None
        }
        # The statement's own snapshot is from before it made us a member.
        joined = {*members, node} if extend else {*members}
        return View(tuple(sorted(joined)), held)


class PostgresFence:
    """For the grants of other coordinators; PostgreSQL's own need none, they are the fence."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def enforce(self, node: UUID, ttl: float, grants: Sequence[Grant]) -> list[Grant]:
        shards, epochs = [grant.shard for grant in grants], [grant.epoch for grant in grants]
        rows = await self._database.fetch("enforce_shards", node, ttl, shards, epochs)
        return [Grant(*row) for row in rows]
