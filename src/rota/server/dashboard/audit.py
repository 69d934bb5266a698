"""The page of the audit log."""

from __future__ import annotations

from typing import Annotated

from litestar.params import QueryParameter

from rota.server.api.audit import read_page
from rota.server.dashboard.commands import Copyable, curl
from rota.server.dashboard.pages import Here, Html, page, show
from rota.server.dependencies import TenantDep
from rota.server.policy import ADMIN
from rota.server.requests import RotaRequest

_ROWS = 50
Text = Annotated[str | None, QueryParameter(max_length=300)]


@page("/audit", policy=ADMIN)
async def audit(
    request: RotaRequest,
    tenant: TenantDep,
    action: Text = None,
    actor: Text = None,
    subject: Text = None,
    cursor: Text = None,
) -> Html:
    asked = {"action": action or None, "actor": actor or None, "subject": subject or None}
    cut = await read_page(tenant, _ROWS, cursor or None, **asked)
    here = Here(request)
    return await show(
        request, "audit.html", entries=cut.items, asked=asked, cursor=cursor,
        next=here.url("/audit", **asked, cursor=cut.next) if cut.next else None,
        how=Copyable(curl=curl("GET", "/v1/audit")),
    )  # fmt: skip


ROUTES = [audit]
