"""Limits in the store: claims from sublanes, and what people see and set. One short method per query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from rota.core.keys import Rate
from rota.model import FairShare, LimitHolder, LimitStatus
from rota.store.database import Store
from rota.store.work import columns_in_order


class Ended(NamedTuple):
    """Jobs of a sublane that have ended, and the seconds in which they had run."""

    jobs: int
    seconds: float


class LimitStore(Store):
    async def claim_shared(
        self, node: UUID, wanted: Mapping[str, int], most: int, tasks: Sequence[str],
        freed: Mapping[str, Ended] | None = None,
    ) -> list[Any]:  # fmt: skip
        """Claim from the sublanes of these lanes: so many of each, and `most` in all.

        `freed`: sublanes in which jobs have ended. There may be places under their limits.
        """
        ended = sorted((freed or {}).items())
        return await self.database.fetch(
            "claim_shared", node, list(wanted), list(wanted.values()), most, tasks,
            [lane for lane, _ in ended], [one.jobs for _, one in ended],
            [one.seconds for _, one in ended],
        )  # fmt: skip

    async def shared_pause(self, lanes: Sequence[str]) -> float | None:
        """Return the seconds until such a claim may find something; None: until there is a hint."""
        pause: float | None = await self.database.fetchval("shared_pause", lanes)
        return pause

    async def resort(self, node: UUID, ids: Sequence[UUID], tokens: Sequence[int]) -> int:
        """Put claimed jobs back, into the sublanes that they belong to by now."""
        count: int = await self.database.fetchval("resort", node, *columns_in_order(ids, tokens))
        return count

    async def set_queue_limits(
        self,
        namespace: str,
        queue: str,
        concurrency: int | None,
        per_key: int | None,
        rate: Rate | None,
    ) -> None:
        each = (None, None, None) if rate is None else (rate.count, rate.period, rate.burst)
        await self.database.fetch("set_queue_limits", namespace, queue, concurrency, per_key, *each)

    async def set_queue_policy(self, namespace: str, queue: str, policy: str) -> None:
        await self.database.fetch("set_queue_policy", namespace, queue, policy)

    async def set_fair_weight(
        self, namespace: str, queue: str, key: str, weight: float | None
    ) -> None:
        if weight is None:
            await self.database.fetch("drop_fair_weight", namespace, queue, key)
        else:
            await self.database.fetch("set_fair_weight", namespace, queue, key, weight)

    async def fair_weight(self, namespace: str, queue: str, key: str) -> float | None:
        weight: float | None = await self.database.fetchval("fair_weight", namespace, queue, key)
        return weight

    async def list_shares(self, namespace: str, queue: str, limit: int = 1000) -> list[FairShare]:
        return await self._all(FairShare, "list_shares", namespace, queue, limit)

    async def service(self, namespace: str, queue: str) -> list[Any]:
        """Return what fairness keys were served, by minute, of the last hour and the minute before."""
        return await self.database.fetch("share_service", namespace, queue)

    async def list_limits(
        self, namespace: str, name: str | None = None, limit: int = 1000
    ) -> list[LimitStatus]:
        return await self._all(LimitStatus, "list_limits", namespace, name, limit)

    async def holders(self, namespace: str, name: str, limit: int = 100) -> list[LimitHolder]:
        return await self._all(LimitHolder, "limit_holders", namespace, name, limit)

    async def forget_unique_keys(self, limit: int) -> int:
        return await self._one(int, "forget_unique_keys", limit)

    async def forget_sublanes(self, limit: int) -> int:
        return await self._one(int, "forget_sublanes", limit)
