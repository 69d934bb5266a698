"""Operations on what happened: list and follow events, and read the audit log."""

from __future__ import annotations

from datetime import datetime

from rota.core.administration import AuditEntry
from rota.errors import NotFound
from rota.model import Event
from rota.operations.base import InstallationOperations, Operations
from rota.store.events import EventStore, EventStream
from rota.store.rows import to_value


class Events(Operations):
    """`app.events`: failures, delays and other things that someone should look at."""

    async def list(
        self, *, kind: str | None = None, since: datetime | None = None, limit: int = 100
    ) -> list[Event]:
        """List events, newest first.

        Kinds: ``failed``, ``dead_lettered``, ``timed_out``, ``slow``, ``slower``, ``late``,
        ``deadline_missed``, ``queue_lag``, ``queue_full``, ``queue_open``, ``missed``, ``overran``,
        ``set_aside``, ``node_dead``, ``task_unknown``.
        """
        return await EventStore(await self._database()).list(self._namespace, kind, since, limit)

    async def stream(self) -> EventStream:
        """Return a reader that pages through events, or follows them as they happen."""
        return EventStream(await self._database())


class AuditLog(InstallationOperations):
    """The changes that users and programs made: who changed what, when and from where."""

    async def list(
        self, namespace: str | None, *, action: str | None = None, actor: str | None = None,
        subject: str | None = None, interface: str | None = None, since: datetime | None = None,
        until: datetime | None = None, before: int | None = None, limit: int = 50,
    ) -> list[AuditEntry]:  # fmt: skip
        """List changes in a namespace (None: in all), newest first.

        `before` is the id of the last entry of the previous page.
        """
        rows = await (await self._database()).fetch(
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
        return [to_value(row, AuditEntry) for row in rows]

    async def get(self, namespace: str, id: int) -> AuditEntry:
        """Return one change; `NotFound` when there is none (any more)."""
        fits = 0 < id < 2**63  # what the column can hold
        rows = await (await self._database()).fetch("get_change", namespace, id) if fits else []
        if not rows:
            raise NotFound(f"the audit log has no entry {id}", subject=id)
        return to_value(rows[0], AuditEntry)
