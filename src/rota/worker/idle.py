"""Says in the database that this worker wants to be told of work, and passes on what it can't take.

Protocol. A worker whose look came back short, and who has free slots, is hungry: its row says how many
slots it has (`wants`), and hints are drawn among such rows. After saying so for the first time it looks
again, at once and twice soon after: a hint that was decided before may have gone elsewhere. Leaving is
lazy, because a false wake-up is harmless: only after it has had enough to do for a while, or when it was
told of work that it has no room for. That hint is then passed on to others. A worker says that it is
hungry at most once a second, so that a busy one doesn't write at every turn. All of this may be lost:
then somebody finds the work at his next look.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from time import monotonic
from typing import Protocol
from uuid import UUID

import msgspec

from rota.store.work import LaneClaim, WorkStore

_SAY_EVERY = 1.0
_BUSY_AFTER = 0.3
_PASS_EVERY = 0.1
_LOOKS = (0.0, 0.05, 0.45)  # after it has just said so: seconds until each of the next looks

NEVER = float("inf")


class Identity(Protocol):
    node_id: UUID


class _Debt(msgspec.Struct):
    """Work of a lane that we were told of, and haven't looked for yet."""

    rank: int
    count: int


class IdleAdvertisement:
    def __init__(self, store: WorkStore, namespace: str, identity: Identity) -> None:
        self._store = store
        self._namespace = namespace
        self._identity = identity
        self._said: int | None = None  # what our row says that we want
        self._say_after = 0.0
        self._busy_since: float | None = None
        self._pass_after = 0.0
        self._debts: dict[str, _Debt] = {}
        self._looks: list[float] = []

    # -- what we were told of

    def pass_hint(self, lane: str, rank: int, count: int) -> None:
        """A hint that only few have got."""
        debt = self._debts.setdefault(lane, _Debt(rank, 0))
        debt.rank = min(debt.rank, rank)
        debt.count += count

    def settle(self, wishes: Iterable[LaneClaim], found: Mapping[str, int]) -> None:
        """After a look: what wasn't there is another's by now."""
        for wish in wishes:
            debt = self._debts.get(wish.lane)
            if debt is not None:
                debt.count -= found[wish.lane]
                if found[wish.lane] < wish.slots or debt.count <= 0:
                    del self._debts[wish.lane]

    async def pass_on(self) -> float:
        """What we have no room for goes to others. Seconds until there is more of it to pass on."""
        now = monotonic()
        if not self._debts:
            return NEVER
        if now < self._pass_after:  # not too often: the others may have no room either
            return self._pass_after - now
        self._pass_after = now + _PASS_EVERY
        debts, self._debts = self._debts, {}
        await self._store.pass_on(
            self._identity.node_id, self._namespace, list(debts),
            [debt.rank for debt in debts.values()], [debt.count for debt in debts.values()],
        )  # fmt: skip
        return NEVER

    # -- what our row says

    async def advertise(self, free: int) -> float:
        """We have so many free slots, and found nothing more. Seconds until the next look, at most."""
        self._busy_since = None
        now = monotonic()
        if self._said is not None and self._said / 2 <= free <= self._said * 2:
            return self._looks.pop(0) if self._looks else NEVER
        if now < self._say_after:
            return NEVER if self._said is not None else self._say_after - now
        first = self._said is None
        self._say_after = now + _SAY_EVERY
        await self._store.advertise_idle(self._identity.node_id, free)
        self._said = free
        if first:
            self._looks = [*_LOOKS]
        return self._looks.pop(0) if self._looks else NEVER

    async def withdraw(self, *, full: bool) -> None:
        """There is enough to do here, at the moment; full: and no room for more."""
        now = monotonic()
        if self._busy_since is None:
            self._busy_since = now
        if (full and self._debts) or now - self._busy_since >= _BUSY_AFTER:
            await self.leave()

    async def leave(self) -> None:
        """Not to be told for now; and what we were told is passed on."""
        if self._said is not None:
            await self._store.withdraw_idle(self._identity.node_id)
            self._said = None
        await self.pass_on()

    def forget(self) -> None:
        """Our row doesn't say so any more: it's a new one, or somebody else has cleared it."""
        self._said = None
        self._looks.clear()
