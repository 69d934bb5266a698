"""Maintenance windows in the store. One short method per query."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from rota.model import MaintenanceWindow
from rota.store.database import Store


class OpenWindow(msgspec.Struct, frozen=True):
    """The window that silences alerts now."""

    name: str
    ends_at: datetime
    note: str
    actor: str


class AnnouncedWindow(msgspec.Struct, frozen=True):
    """The part of a window that the public may know."""

    starts_at: datetime
    ends_at: datetime


class MaintenanceStore(Store):
    async def list(self, namespace: str, name: str | None = None) -> Sequence[MaintenanceWindow]:
        return await self._all(MaintenanceWindow, "list_maintenance", namespace, name)

    async def put(
        self, namespace: str, name: str, start: datetime | None, seconds: float,
        kinds: Sequence[str], note: str, actor: str,
    ) -> None:  # fmt: skip
        await self.database.fetch(
            "put_maintenance", namespace, name, start, seconds, list(kinds), note, actor
        )

    async def delete(self, namespace: str, name: str) -> bool:
        return bool(await self.database.fetch("delete_maintenance", namespace, name))

    async def announced(self, namespace: str) -> Sequence[AnnouncedWindow]:
        return await self._all(AnnouncedWindow, "announced_maintenance", namespace)

    async def open(self, namespace: str) -> OpenWindow | None:
        return await self._first(OpenWindow, "open_maintenance", namespace)
