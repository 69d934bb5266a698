"""What the commands about access share: the tables, and the audit log."""

from __future__ import annotations

import getpass
from typing import Any

from rota.app import App
from rota.store.audit import AuditStore, Changed
from rota.store.identity import IdentityStore


async def identity_store(app: App) -> IdentityStore:
    return IdentityStore((await app.store()).database)


async def audited(
    app: App, action: str, subject: str, *, before: Any = None, after: Any = None,
    namespace: str | None = None,
) -> None:  # fmt: skip
    """Who can reach the database can do this; the log says who it was on that machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "somebody"
    changed = Changed(
        namespace=namespace or app.settings.namespace, actor=f"{user}@{app.settings.node_name}",
        via="cli", action=action, subject=subject, before=before, after=after,
    )  # fmt: skip
    await AuditStore((await app.store()).database).record(changed)
