"""Namespaces and their limits, in the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from rota.core.administration import Limits, Namespace
from rota.store.database import Store


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

    async def namespace_names(self, most: int) -> list[str]:
        """Return the first names of those that `list_namespaces` has."""
        return await self._all(str, "namespace_names", most)

    async def some_namespaces(self, names: Sequence[str]) -> list[Namespace]:
        """Return the namespaces of these names, by name."""
        return _to_namespaces(await self.database.fetch("some_namespaces", list(names)))

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
