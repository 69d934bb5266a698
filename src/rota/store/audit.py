"""Entries of the audit log."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec


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


def to_audit_entry(row: Any) -> AuditEntry:
    fields = dict(row)
    for name in ("before", "after"):
        if fields[name] is not None:
            fields[name] = msgspec.json.decode(fields[name])
    return AuditEntry(**fields)
