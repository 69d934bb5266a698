"""Marks on alerts in the store. One short method per query."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from rota.store.database import Store


class AlertMark(msgspec.Struct, frozen=True, kw_only=True):
    """An acknowledgement or a silence of an alert."""

    alert: str
    acknowledged_at: datetime | None
    silenced_until: datetime | None
    actor: str
    note: str


class AlertStore(Store):
    async def marks(self, namespace: str, keys: Sequence[str]) -> dict[str, AlertMark]:
        found = await self._all(AlertMark, "list_alert_marks", namespace, list(keys))
        return {mark.alert: mark for mark in found}

    async def acknowledge(self, namespace: str, key: str, actor: str, note: str) -> None:
        await self.database.fetch("acknowledge_alert", namespace, key, actor, note)

    async def silence(
        self, namespace: str, key: str, seconds: float, actor: str, note: str
    ) -> None:
        await self.database.fetch("silence_alert", namespace, key, seconds, actor, note)

    async def restore(self, namespace: str, key: str) -> AlertMark | None:
        """Remove the mark of an alert, and return it."""
        return await self._first(AlertMark, "restore_alert", namespace, key)
