"""The audit log, in the store."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from rota.store.database import Database


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """Something that somebody changed."""

    namespace: str
    actor: str
    via: str
    action: str
    subject: str
    before: Any = None
    after: Any = None
    request_id: str | None = None
    address: str | None = None


class AuditEntry(Changed, frozen=True, kw_only=True):
    """The same, as it was recorded."""

    id: int
    at: datetime


class AuditStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def record(self, changed: Changed) -> None:
        await self._database.fetch(
            "record_change", changed.namespace, changed.actor, changed.via, changed.action,
            changed.subject, _json(changed.before), _json(changed.after), changed.request_id,
            changed.address,
        )  # fmt: skip

    async def list(
        self, namespace: str | None, *, action: str | None = None, actor: str | None = None,
        subject: str | None = None, before: int | None = None, limit: int = 50,
    ) -> list[AuditEntry]:  # fmt: skip
        """The newest first; `before` is the id of the last one of the page before."""
        rows = await self._database.fetch(
            "list_changes", namespace, action, actor, subject, before, limit
        )
        return [_to_entry(row) for row in rows]


def _to_entry(row: Any) -> AuditEntry:
    fields = dict(row)
    for name in ("before", "after"):
        if fields[name] is not None:
            fields[name] = msgspec.json.decode(fields[name])
    return AuditEntry(**fields)


def _json(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()
