"""Limits in the store: claims from sublanes, and what people see and set. One short method per query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from rota.context import PermitAsk
from rota.core.keys import Rate
from rota.model import FairShare, LimitHolder, LimitStatus
from rota.store.database import Store
from rota.store.work import columns_in_order


class Ended(NamedTuple):
    """Jobs of a sublane that have ended, and the seconds in which they had run."""

    jobs: int
    seconds: float


class Allotments(msgspec.Struct):
    """The jobs that a node may run at a time under limits of whole queues and tasks."""

    lanes: dict[str, list[str]]  # by lane: the limits that its jobs are under
    allowed: dict[str, int]  # by limit
    more: dict[str, bool]  # the limits whose lanes may have more jobs


class LimitStore(Store):
    async def claim_shared(
        self, node: UUID, wanted: Mapping[str, int], most: int, tasks: Sequence[str],
        freed: Mapping[str, Ended] | None = None,
    ) -> list[Any]:  # fmt: skip
        """Claim from the sublanes of these lanes: so many of each, and `most` in all.

        `freed`: sublanes in which jobs have ended. There may be places under their limits.
        """
        return await self._claim(node, wanted, most, tasks, freed, None)

    async def claim_allotted(
        self, node: UUID, wanted: Mapping[str, int], most: int, tasks: Sequence[str],
        freed: Mapping[str, Ended], gates: Mapping[str, Any],
    ) -> tuple[list[Any], Allotments | None]:  # fmt: skip
        """Claim as a node that keeps allotments: `gates` is what it has of them.

        What it may run from now on comes as a row without an id.
        """
        text = msgspec.json.encode(gates).decode()
        rows = await self._claim(node, wanted, most, tasks, freed, text)
        notes = [row for row in rows if row["id"] is None]
        if not notes:
            return rows, None
        found = msgspec.json.decode(notes[0]["payload"], type=Allotments)
        return [row for row in rows if row["id"] is not None], found

    async def _claim(
        self, node: UUID, wanted: Mapping[str, int], most: int, tasks: Sequence[str],
        freed: Mapping[str, Ended] | None, gates: str | None,
    ) -> list[Any]:  # fmt: skip
        ended = sorted((freed or {}).items())
        return await self.database.fetch(
            "claim_shared", node, list(wanted), list(wanted.values()), most, tasks,
            [lane for lane, _ in ended], [one.jobs for _, one in ended],
            [one.seconds for _, one in ended], gates,
        )  # fmt: skip

    async def settle_allotments(
        self, node: UUID, namespace: str, turn: int, meters: Sequence[str],
        ceilings: Sequence[int], wishes: Sequence[int],
    ) -> dict[str, int | None]:  # fmt: skip
        """Return what the node may run under these limits from now on; None: there is no limit."""
        rows = await self.database.fetch(
            "settle_allotments", node, namespace, turn, meters, ceilings, wishes
        )
        return {row["meter"]: row["target"] for row in rows}

    async def take_permit(
        self, node: UUID, job: UUID, token: int, namespace: str, ask: PermitAsk
    ) -> tuple[bool, float, bool]:
        """Return whether a place was granted, else when to ask again, and whether the lease is lost."""
        rate = ask.rate
        spacing = None if rate is None else rate.period / rate.count
        row = (await self.database.fetch(
            "take_permit", node, job, token, namespace, ask.name, ask.number, ask.concurrency,
            spacing, None if rate is None else rate.burst,
        ))[0]  # fmt: skip
        return row["granted"], row["wait"], row["lost"]

    async def leave_permit(self, job: UUID, token: int, namespace: str, ask: PermitAsk) -> None:
        await self.database.fetch("leave_permit", job, token, namespace, ask.name, ask.number)

    async def shared_pause(self, lanes: Sequence[str], enough: Sequence[str] = ()) -> float | None:
        """Return the seconds until such a claim may find something; None: until there is a hint.

        `enough`: sublanes of which the caller has all that it may run.
        """
        pause: float | None = await self.database.fetchval("shared_pause", lanes, enough)
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

    async def forget_permits(self, limit: int) -> None:
        await self.database.fetch("forget_permits", limit)

    async def forget_sublanes(self, limit: int) -> int:
        return await self._one(int, "forget_sublanes", limit)
