"""The page of webhooks."""

from __future__ import annotations

from uuid import UUID

from litestar.params import FromPath

from rota.operations.rota import Rota
from rota.operations.webhooks import KINDS
from rota.server.api.webhooks import WebhookRequest
from rota.server.dashboard.commands import Copyable, cli, curl, python
from rota.server.dashboard.forms import Fields, Wrong, convert, telling_why
from rota.server.dashboard.pages import Back, Html, action, back, page, show
from rota.server.dependencies import TenantDep
from rota.server.policy import ADMIN
from rota.server.requests import RotaRequest


@page("/webhooks", policy=ADMIN)
async def list_webhooks(request: RotaRequest, tenant: TenantDep) -> Html:
    return await _shown(request, tenant)


async def _shown(
    request: RotaRequest, tenant: Rota, *, secret: str | None = None, problem: str | None = None
) -> Html:
    return await show(
        request, "webhooks.html", webhooks=await tenant.webhooks.list(),
        allowed=await tenant.webhooks.allowed(), kinds=KINDS,
        secret=secret, problem=problem, status=200 if problem is None else 422,
        how=Copyable(
            cli=cli("webhooks", "add", "https://example.org/hook", "--kind", "failed"),
            curl=curl("POST", "/v1/webhooks", {"url": "https://example.org/hook"}),
            python=python('await app.webhooks.add("https://example.org/hook", kinds=["failed"])'),
        ),
    )  # fmt: skip


@action("/webhooks", policy=ADMIN)
async def add_webhook(request: RotaRequest, tenant: TenantDep) -> Html:
    """Add a webhook. The answer is the only page that ever shows its secret."""
    fields = await Fields.of(request)
    try:
        with telling_why():
            said = convert(
                {"url": fields.text("url"), "kinds": fields.several("kind"),
                 "format": fields.text("format")},
                WebhookRequest,
            )  # fmt: skip
            made = await tenant.webhooks.add(said.url, kinds=said.kinds, form=said.format)
    except Wrong as wrong:
        return await _shown(request, tenant, problem=str(wrong))
    return await _shown(request, tenant, secret=made.secret)


@action("/webhooks/{webhook_id:uuid}/pause", policy=ADMIN)
async def pause(request: RotaRequest, tenant: TenantDep, webhook_id: FromPath[UUID]) -> Back:
    await tenant.webhooks.pause(webhook_id)
    return back(
        request,
        "/webhooks",
        "Webhook paused. Events that happen during the pause are not sent later.",
    )


@action("/webhooks/{webhook_id:uuid}/resume", policy=ADMIN)
async def resume(request: RotaRequest, tenant: TenantDep, webhook_id: FromPath[UUID]) -> Back:
    await tenant.webhooks.resume(webhook_id)
    return back(request, "/webhooks", "Webhook resumed.")


@action("/webhooks/{webhook_id:uuid}/test", policy=ADMIN)
async def test(request: RotaRequest, tenant: TenantDep, webhook_id: FromPath[UUID]) -> Back:
    job = await tenant.webhooks.test(webhook_id)
    told = "This job sends the test event."
    return back(request, f"/jobs/{job.id}", told)


@action("/webhooks/{webhook_id:uuid}/remove", policy=ADMIN)
async def remove(request: RotaRequest, tenant: TenantDep, webhook_id: FromPath[UUID]) -> Back:
    await tenant.webhooks.remove(webhook_id)
    return back(request, "/webhooks", "Webhook removed.")


ROUTES = [list_webhooks, add_webhook, pause, resume, test, remove]
