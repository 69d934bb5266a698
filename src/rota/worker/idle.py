"""Advertises in the database that this worker is idle, and passes on hints that it has no room for.

Protocol. A worker that has free slots and found too few jobs is idle: its row says how many slots are
free (`idle_slots`), and hints are drawn among such rows. After the first advertisement it claims again,
at once and twice soon after: a hint that was decided before may have gone elsewhere. It withdraws
lazily, because a needless wake-up is harmless: only after it has had enough to do for a while, or when
it got a hint that it has no room for, or found more than a hint had announced. That hint is then passed
on to others. A worker advertises at most
once a second, so that a busy one doesn't write with every tick. All of this may be lost: then somebody
finds the work by polling.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from time import monotonic

from rota.runtime.heartbeat import Lease
from rota.runtime.lanes import PendingHints
from rota.store.work import LaneClaim, WorkStore

_ADVERTISE_EVERY = 1.0
_BUSY_AFTER = 0.3
_PASS_EVERY = 0.1
_CLAIMS = (0.0, 0.05, 0.45)  # seconds before each of the next claims, after the first advertisement

NEVER = float("inf")


class IdleAdvertisement:
    def __init__(self, store: WorkStore, namespace: str, lease: Lease) -> None:
        self._store = store
        self._namespace = namespace
        self._lease = lease
        self._advertised: int | None = None  # the free slots that our row names
        self._advertise_after = 0.0
        self._busy_since: float | None = None
        self._pass_after = 0.0
        self.pending = PendingHints()  # hints that only few workers were given
        self._claims: list[float] = []

    # -- hints

    def settle(self, wishes: Iterable[LaneClaim], found: Mapping[str, int]) -> None:
        """Forget hints after a claim: jobs that weren't found have been claimed by others."""
        if self.pending:
            for wish in wishes:
                claimed = found[wish.lane]
                self.pending.settle(wish.lane, claimed, exhausted=claimed < wish.slots)

    async def pass_on(self) -> float:
        """Give hints to other workers. Return the seconds until more of them may be passed on."""
        now = monotonic()
        if not self.pending:
            return NEVER
        if now < self._pass_after:  # not too often: the others may have no room either
            return self._pass_after - now
        self._pass_after = now + _PASS_EVERY
        await self.pending.pass_on(self._store, self._lease.node_id, self._namespace)
        return NEVER

    # -- our row

    async def advertise(self, free: int) -> float:
        """Advertise so many free slots. Return the seconds until the next claim, at most."""
        self._busy_since = None
        now = monotonic()
        if self._advertised is not None and self._advertised / 2 <= free <= self._advertised * 2:
            return self._claims.pop(0) if self._claims else NEVER
        if now < self._advertise_after:
            return NEVER if self._advertised is not None else self._advertise_after - now
        first = self._advertised is None
        self._advertise_after = now + _ADVERTISE_EVERY
        await self._store.advertise_idle(self._lease.node_id, free)
        self._advertised = free
        if first:
            self._claims = [*_CLAIMS]
        return self._claims.pop(0) if self._claims else NEVER

    async def withdraw(self, *, full: bool) -> None:
        """Withdraw once there has been enough to do for a while. `full`: there is no free slot."""
        now = monotonic()
        if self._busy_since is None:
            self._busy_since = now
        if (full and self.pending) or now - self._busy_since >= _BUSY_AFTER:
            await self.leave()

    async def leave(self) -> None:
        """Withdraw now, and pass pending hints on."""
        if self._advertised is not None:
            await self._store.withdraw_idle(self._lease.node_id)
            self._advertised = None
        await self.pass_on()

    def forget(self) -> None:
        """Take our row for withdrawn: it is a new one, or somebody else has cleared it."""
        self._advertised = None
        self._claims.clear()
