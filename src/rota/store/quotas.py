"""Namespaces and their limits, in the store."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec

from rota.store.database import Store

Amount = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of a namespace; null: no limit."""

    max_jobs: Amount | None = None  # that wait, run or have failed
    max_payload_bytes: Amount | None = None  # of those jobs, together
    submits_per_second: Annotated[float, msgspec.Meta(gt=0, le=1e9)] | None = None
    # Jobs that have not ended: on every way in, also past servers.
    max_depth: Annotated[int, msgspec.Meta(ge=1, le=2**53)] | None = None


class Namespace(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    created_at: datetime | None  # None: it has jobs, and no row of its own
    limits: Limits
    stored_jobs: int | None  # as far as was counted for its limits, and never too few
    stored_bytes: int | None
    depth: int | None = None  # jobs that have not ended; None: not counted


class Admission(msgspec.Struct, frozen=True):
    refused: str | None  # the limit that was reached
    retry_after: float | None


class QuotaStore(Store):
    async def admit(
        self, namespace: str, jobs: int, payload_bytes: int, *, allow_debt: bool
    ) -> Admission:
        """Decide whether so much may be submitted now; if so, it counts as submitted."""
        rows = await self.database.fetch("admit", namespace, jobs, payload_bytes, allow_debt)
        return Admission(*rows[0])

    async def admit_token(self, id: UUID, jobs: int) -> float | None:
        """Count jobs as submitted with a token; return the seconds to wait if they are over its rate."""
        wait: float | None = await self.database.fetchval("admit_token", id, jobs)
        return wait

    async def limited_namespaces(self) -> frozenset[str]:
        return frozenset(await self._all(str, "limited_namespaces"))

    async def put_namespace(self, name: str, limits: Limits) -> Namespace:
        values = msgspec.structs.astuple(limits)
        return _to_namespaces(await self.database.fetch("put_namespace", name, *values))[0]

    async def get_namespace(self, name: str) -> Namespace | None:
        found = _to_namespaces(await self.database.fetch("get_namespace", name))
        return found[0] if found else None

    async def list_namespaces(self) -> list[Namespace]:
        return _to_namespaces(await self.database.fetch("list_namespaces"))

    async def remove_namespace(self, name: str) -> Namespace | None:
        """Remove the limits of a namespace, not its jobs, and return it as it was."""
        found = _to_namespaces(await self.database.fetch("remove_namespace", name))
        return found[0] if found else None

    async def readiness(self) -> tuple[int, int]:
        """Count the schedulers and workers that are alive, in all namespaces."""
        rows = await self.database.fetch("readiness")
        return rows[0]["schedulers"], rows[0]["workers"]


def _to_namespaces(rows: list[Any]) -> list[Namespace]:
    return [
        msgspec.convert({**row, "limits": {n: row[n] for n in Limits.__struct_fields__}}, Namespace)
        for row in rows
    ]
