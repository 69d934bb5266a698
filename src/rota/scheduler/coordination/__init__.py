"""The interface between Rota and the coordinator that grants shards to its schedulers.

A coordinator grants shards to nodes for a time. A grant is (shard, owner, epoch): the epoch is a
fencing number that is higher than that of every grant of the shard before. Rota asks nothing more of
it, and doesn't trust it with correctness: the database enforces epochs of its own, in the transaction
of every write that a scheduler makes as an owner (`guarded.py`). A coordinator that grants a shard
twice, loses its memory, is exchanged or is away costs work done twice or work done later, never a
wrong result.

PostgreSQL is the default: coordinator and fence are then the same row. Where a company already runs
etcd, ZooKeeper or Consul, `etcd.py`, `zookeeper.py` and `consul.py` use their leases and their
revisions; `opening.py` chooses by the setting `coordination`. All pass the suite in
tests/support/coordination_suite.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol
from uuid import UUID

import msgspec

from rota.errors import StoreUnavailable
from rota.store.database import Database


class CoordinatorUnavailable(StoreUnavailable):
    """Raised when a coordinator other than PostgreSQL doesn't answer, or refuses."""


class Grant(msgspec.Struct, frozen=True, order=True):
    """A shard, and the number under which it was given to its owner."""

    shard: int
    epoch: int


class View(msgspec.Struct, frozen=True):
    """The state of a coordinator at one moment."""

    members: tuple[UUID, ...]  # the nodes among whom the shards are shared
    owners: Mapping[int, tuple[UUID, int]]  # shard: (owner, epoch), of grants that hold
    # For how long what was renewed holds, where that isn't what was asked for: services have bounds.
    ttl: float | None = None
    # Shards that the coordinator has granted to the asking node, and the database has not accepted yet.
    pending: frozenset[int] = frozenset()

    def grants_of(self, node: UUID) -> list[Grant]:
        return [
            Grant(shard, epoch)
            for shard, (owner, epoch) in self.owners.items()
            if owner == node and shard not in self.pending
        ]


class Coordination(Protocol):
    """A coordinator.

    Every call is safe to repeat, and raises StoreUnavailable if it can't be reached.
    """

    async def acquire(self, node: UUID, ttl: float, shards: Sequence[int]) -> list[Grant]:
        """Grant those of the shards that nobody holds to this node, for `ttl` seconds."""
        ...

    async def renew(self, node: UUID, ttl: float) -> View:
        """Keep the node a member, with what it holds, for another `ttl` seconds."""
        ...

    async def watch(self, node: UUID) -> View:
        """Return the current state, without renewing anything."""
        ...

    async def release(self, node: UUID, shards: Sequence[int] | None = None) -> None:
        """Hand these over, free at once; without any named: all of them, and stop being a member."""
        ...

    async def close(self) -> None:
        """Close the connections. Called once, after the release of everything."""
        ...


class PostgresCoordination:
    """Coordination by PostgreSQL: one row per shard, judged by the database's clock.

    Protocol. A grant is an update of the shard's row: owner, a higher epoch, an expiry. It is made only
    when the row has expired or was given up, under a row lock that also waits for nobody: a row that
    its old owner's write has locked at this moment is passed over, and asked for again at the next
    tick. An answer that was lost is found again: whatever the row says is the owner's, is in the next
    view.
    """

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

    async def close(self) -> None:
        """Do nothing: the connections are the node's."""

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
