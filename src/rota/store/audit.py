"""The audit log, in the store."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from rota.store.database import Database


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A change as it was recorded; see `rota.store.changes`."""

    id: int
    at: datetime
    namespace: str
    actor: str
    via: str
    action: str
    subject: str
    before: Any = None
    after: Any = None
    request_id: str | None = None
    address: str | None = None
    interface: str | None = None  # rest, dashboard, cli, python


class AuditStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(
        self, namespace: str | None, *, action: str | None = None, actor: str | None = None,
        subject: str | None = None, interface: str | None = None, since: datetime | None = None,
        until: datetime | None = None, before: int | None = None, limit: int = 50,
    ) -> list[AuditEntry]:  # fmt: skip
        """The newest first; `before` is the id of the last one of the page before."""
        rows = await self._database.fetch(
            "list_changes",
            namespace,
            action,
            actor,
            subject,
            before,
            limit,
            interface,
            since,
            until,
        )
        return [_to_entry(row) for row in rows]


def _to_entry(row: Any) -> AuditEntry:
    fields = dict(row)
    for name in ("before", "after"):
        if fields[name] is not None:
            fields[name] = msgspec.json.decode(fields[name])
    return AuditEntry(**fields)
