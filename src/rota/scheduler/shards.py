"""Keeps a scheduler's share of the shards.

Protocol. Every tick is one statement: see who is a scheduler and who holds what, and, when a third of
the lease is gone, renew. From that view every scheduler decides alone what its share is: it takes what
should be its own and is nobody's, and hands over what should be another's. A graceful stop hands over
everything at once; of a node that dies the rows expire.

What is held is trusted from the moment when the renewing request was sent, for the lease minus a
margin, on this node's monotonic clock: a slow answer or a long sleep shortens the trust. It is not
relied on: every write as an owner checks the epoch in its own transaction, and an owner that finds its
epoch to be over steps down (`lost`). An answer that never came is found in the next view.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import Protocol
from uuid import UUID

from rota.core.shards import moves_of
from rota.lib.ids import unit
from rota.runtime.ticker import Service
from rota.scheduler.coordination import Coordination, Grant, View

log = logging.getLogger("rota.shards")

_TICK_EVERY = 0.5  # what is handed over shall not wait long for its new owner
_LOOKS_PER_LEASE = 6
_RENEWALS_PER_LEASE = 3
_SWEEP_EVERY = 0.5  # seconds: a shard without an owner delays nothing for longer than this


class Ownership(Protocol):
    """The shards of a scheduler, as its services see them."""

    def held(self) -> list[Grant]: ...

    def others(self) -> list[int]: ...

    def lost(self, shards: Iterable[int]) -> None: ...


class ShardSelection:
    """Selects the shards for each tick of a service: its own, and now and then all others."""

    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership
        self._sweep_at = 0.0

    def next(self) -> tuple[list[int], list[int | None]]:
        """Return shards, and the epoch under which each is ours; None: it isn't, and is swept."""
        held = self._ownership.held()
        shards, epochs = [grant.shard for grant in held], [grant.epoch for grant in held]
        if (now := monotonic()) < self._sweep_at:
            return shards, [*epochs]
        self._sweep_at = now + _SWEEP_EVERY
        others = self._ownership.others()
        return [*shards, *others], [*epochs, *(None for _ in others)]


class AllShards:
    """Owns all shards, as they are before any scheduler took one: for tests and `rota.testing`."""

    def __init__(self, count: int) -> None:
        self._all = [Grant(shard, 0) for shard in range(count)]

    def held(self) -> list[Grant]:
        return self._all

    def others(self) -> list[int]:
        return []

    def lost(self, shards: Iterable[int]) -> None:
        """Do nothing: nobody else is there to have taken them."""


class Shards(Service):
    name = "shards"

    def __init__(
        self, coordination: Coordination, count: int, ttl: float, node: Callable[[], UUID]
    ) -> None:
        self._coordination = coordination
        self._all = range(count)
        self._ttl = ttl
        self._node = node
        self._me: UUID | None = None
        self._held: dict[int, int] = {}
        self._over: dict[int, int] = {}  # epochs that a fence refused, by shard
        self._believed_until = 0.0
        self._renew_at = 0.0

    # -- for the scheduler's services

    def held(self) -> list[Grant]:
        """Return the shards that are this node's, as far as it may trust that."""
        if monotonic() >= self._believed_until or self._me != self._node():
            return []
        return [Grant(shard, epoch) for shard, epoch in self._held.items()]

    @property
    def joined(self) -> bool:
        """True while this scheduler takes part in sharing the shards, however many it got."""
        return monotonic() < self._believed_until and self._me == self._node()

    def others(self) -> list[int]:
        """Return the shards that are not this node's: they have another owner, or none."""
        held = self._held if monotonic() < self._believed_until else {}
        return [shard for shard in self._all if shard not in held]

    def lost(self, shards: Iterable[int]) -> None:
        """Step down from shards: a fence refused us, they are another's."""
        gone = {shard: self._held.pop(shard) for shard in shards if shard in self._held}
        self._over.update(gone)
        if gone:
            log.warning("stepped down from %d shards that another scheduler has taken", len(gone))

    # -- keeping them

    async def tick(self) -> float:
        me, sent = self._node(), monotonic()
        if me != self._me:  # a new identity owns nothing yet
            self._me, self._held, self._over, self._renew_at = me, {}, {}, 0.0
        if sent >= self._renew_at:
            view = await self._coordination.renew(me, self._ttl)
            lease = self._ttl if view.ttl is None else view.ttl
            # Measured from before the request: a slow answer must not stretch it.
            self._believed_until = sent + lease * 0.9
            self._renew_at = sent + min(lease, self._ttl) / _RENEWALS_PER_LEASE
        else:
            view = await self._coordination.watch(me)
        await self._settle(me, view)
        return min(_TICK_EVERY, self._ttl / _LOOKS_PER_LEASE) * (0.9 + unit() / 5)

    async def _settle(self, me: UUID, view: View) -> None:
        self._hold(view.grants_of(me))
        owners = {shard: owner for shard, (owner, _) in view.owners.items()}
        if me not in view.members:
            self._renew_at = 0.0  # it was forgotten: join again
        take, give = moves_of(me, self._all, view.members, owners)
        # Nobody has a shard that is ours under an epoch which a fence refused. If the view is an old one
        # and it is another's by now, giving it changes nothing.
        give = sorted(
            {*give, *(grant.shard for grant in view.grants_of(me) if self._is_over(grant))}
        )
        if give:
            for shard in give:
                self._held.pop(shard, None)
            await self._coordination.release(me, give)
            log.info("handed over %d shards, %d left", len(give), len(self._held))
        if take:
            await self._take(me, take)

    async def _take(self, me: UUID, shards: Sequence[int]) -> None:
        taken = await self._coordination.acquire(me, self._ttl, shards)
        if taken:
            self._hold([*self.held(), *taken])
            log.info("took over %d shards, %d in all", len(taken), len(self._held))

    def _hold(self, grants: Sequence[Grant]) -> None:
        # Epochs only rise: one that a fence refused is over, whatever an older view says.
        self._held = {grant.shard: grant.epoch for grant in grants if not self._is_over(grant)}

    def _is_over(self, grant: Grant) -> bool:
        return grant.epoch <= self._over.get(grant.shard, -1)

    async def leave(self) -> None:
        """Hand everything over at once. If that fails, it expires."""
        self._held = {}
        if self._me is None:
            return
        try:
            await self._coordination.release(self._me)
        except Exception as error:  # noqa: BLE001 - stopping must go on
            log.warning("could not hand over the shards, they expire by themselves: %s", error)
        with contextlib.suppress(Exception):
            await self._coordination.close()
