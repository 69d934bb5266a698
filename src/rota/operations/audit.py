"""Read the audit log: who changed what, when and from where."""

from __future__ import annotations

from datetime import datetime

from rota.operations.connection import Connections
from rota.store.audit import AuditEntry, AuditStore


class AuditLog:
    """`rota.audit`"""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def list(
        self, namespace: str | None, *, action: str | None = None, actor: str | None = None,
        subject: str | None = None, interface: str | None = None, since: datetime | None = None,
        until: datetime | None = None, before: int | None = None, limit: int = 50,
    ) -> list[AuditEntry]:  # fmt: skip
        """List changes in a namespace (None: in all), newest first.

        `before` is the id of the last entry of the previous page.
        """
        store = AuditStore((await self._connections.opened()).database)
        return await store.list(
            namespace, action=action, actor=actor, subject=subject, interface=interface,
            since=since, until=until, before=before, limit=limit,
        )  # fmt: skip
