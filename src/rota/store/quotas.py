"""Namespaces and their limits, in the store."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec

from rota.store.database import Database

Amount = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of a namespace; null: no limit."""

    max_jobs: Amount | None = None  # that wait, run or have failed
    max_payload_bytes: Amount | None = None  # of those jobs, together
    submits_per_second: Annotated[float, msgspec.Meta(gt=0, le=1e9)] | None = None


class Namespace(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    created_at: datetime | None  # None: it is just used
    limits: Limits
    stored_jobs: int | None  # as far as was counted for its limits, and never too few
    stored_bytes: int | None


class Admission(msgspec.Struct, frozen=True):
    refused: str | None  # the limit that stands in the way
    retry_after: float | None


class QuotaStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def admit(
        self, namespace: str, jobs: int, payload_bytes: int, *, allow_debt: bool
    ) -> Admission:
        """Whether so much may be submitted now; if so, it counts as submitted."""
        rows = await self._database.fetch("admit", namespace, jobs, payload_bytes, allow_debt)
        return Admission(*rows[0])

    async def limited_namespaces(self) -> frozenset[str]:
        return frozenset(row[0] for row in await self._database.fetch("limited_namespaces"))

    async def put_namespace(self, name: str, limits: Limits) -> Namespace:
        rows = await self._database.fetch(
            "put_namespace", name, limits.max_jobs, limits.max_payload_bytes,
            limits.submits_per_second,
        )  # fmt: skip
        return _to_namespace(rows[0])

    async def get_namespace(self, name: str) -> Namespace | None:
        rows = await self._database.fetch("get_namespace", name)
        return _to_namespace(rows[0]) if rows else None

    async def list_namespaces(self) -> list[Namespace]:
        return [_to_namespace(row) for row in await self._database.fetch("list_namespaces")]

    async def remove_namespace(self, name: str) -> Namespace | None:
        """Its limits, not its jobs."""
        rows = await self._database.fetch("remove_namespace", name)
        return _to_namespace(rows[0]) if rows else None

    async def readiness(self) -> tuple[int, int]:
        """How many schedulers and workers are alive, in whatever namespace."""
        rows = await self._database.fetch("readiness")
        return rows[0]["schedulers"], rows[0]["workers"]


def _to_namespace(row: Any) -> Namespace:
    limits = Limits(
        max_jobs=row["max_jobs"],
        max_payload_bytes=row["max_payload_bytes"],
        submits_per_second=row["submits_per_second"],
    )
    return Namespace(
        name=row["name"], created_at=row["created_at"], limits=limits,
        stored_jobs=row["stored_jobs"], stored_bytes=row["stored_bytes"],
    )  # fmt: skip
