"""Webhooks in the store, and the hosts to which a namespace's requests may go."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from rota.core.administration import Webhook
from rota.store.database import Store

log = logging.getLogger("rota.webhooks")

_PAUSED_AFTER = 50  # failures in a row


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """The data of one attempt to deliver an event."""

    url: str
    secret: str
    format: str
    paused: bool
    allowed: tuple[str, ...]
    now: datetime


class WebhookStore(Store):
    async def add(
        self, id: UUID, namespace: str, url: str, secret: str, kinds: Sequence[str], form: str
    ) -> bool:
        """Add a webhook; False if there is one with this URL."""
        rows = await self.database.fetch(
            "add_webhook", id, namespace, url, secret, list(kinds), form
        )
        return bool(rows)

    async def list(
        self, namespace: str, *, id: UUID | None = None, most: int | None = None, skip: int = 0
    ) -> list[Webhook]:
        return await self._all(Webhook, "list_webhooks", namespace, id, most, skip)

    async def remove(self, namespace: str, id: UUID) -> bool:
        return bool(await self.database.fetch("remove_webhook", namespace, id))

    async def pause(self, namespace: str, id: UUID, paused: bool) -> bool:
        return bool(await self.database.fetch("pause_webhook", namespace, id, paused))

    async def find_delivery(self, namespace: str, id: UUID) -> Delivery | None:
        return await self._first(Delivery, "find_delivery", namespace, id)

    async def note_success(self, id: UUID) -> None:
        await self.database.fetch("note_webhook_success", id)

    async def note_failure(self, id: UUID, problem: str, *, pause: bool = False) -> None:
        paused = await self.database.fetchval(
            "note_webhook_failure", id, problem, pause, _PAUSED_AFTER
        )
        if paused:
            log.warning("webhook %s is paused: %s", id, problem)

    async def allow(self, namespace: str, entry: str) -> None:
        await self.database.fetch("allow_host", namespace, entry)

    async def disallow(self, namespace: str, entry: str) -> bool:
        return bool(await self.database.fetch("disallow_host", namespace, entry))

    async def allowed(self, namespace: str) -> Sequence[str]:
        return await self._all(str, "list_allowed_hosts", namespace)
