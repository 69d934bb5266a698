"""The audit log: who changed what, before and after."""

from __future__ import annotations

from litestar import get
from litestar.params import FromQuery

from rota.server.api.pages import Cursor, Limit, Page, make_page, read_cursor
from rota.server.dependencies import ContextDep, PrincipalDep
from rota.server.policy import ADMIN
from rota.store.audit import AuditEntry, AuditStore


@get("/v1/audit", policy=ADMIN, summary="What was changed in the namespace")
async def list_changes(
    context: ContextDep, principal: PrincipalDep, limit: Limit = 50, cursor: Cursor = None,
    action: FromQuery[str | None] = None, actor: FromQuery[str | None] = None,
    subject: FromQuery[str | None] = None,
) -> Page[AuditEntry]:  # fmt: skip
    """The newest first."""
    store = await context.tenants.get(principal.namespace).store()
    found = await AuditStore(store.database).list(
        principal.namespace, action=action, actor=actor, subject=subject,
        before=read_cursor(cursor, int), limit=limit + 1,
    )  # fmt: skip
    return make_page(found, limit, lambda entry: entry.id)


ROUTES = (list_changes,)
