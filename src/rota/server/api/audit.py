"""The audit log: who changed what, before and after."""

from __future__ import annotations

from typing import Any

from litestar import get
from litestar.params import FromQuery

from rota.operations.rota import Rota
from rota.server.api.pages import Cursor, Limit, Page, make_page, read_cursor
from rota.server.dependencies import TenantDep
from rota.server.policy import ADMIN
from rota.store.audit import AuditEntry


async def read_page(
    tenant: Rota, limit: int, cursor: str | None, **filters: Any
) -> Page[AuditEntry]:
    found = await tenant.audit.list(
        tenant.namespace, before=read_cursor(cursor, int), limit=limit + 1, **filters
    )
    return make_page(found, limit, lambda entry: entry.id)


@get("/v1/audit", policy=ADMIN, summary="List changes in the namespace")
async def list_changes(
    tenant: TenantDep, limit: Limit = 50, cursor: Cursor = None,
    action: FromQuery[str | None] = None, actor: FromQuery[str | None] = None,
    subject: FromQuery[str | None] = None,
) -> Page[AuditEntry]:  # fmt: skip
    """Newest first."""
    return await read_page(tenant, limit, cursor, action=action, actor=actor, subject=subject)


ROUTES = (list_changes,)
