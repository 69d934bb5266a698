"""Webhooks: who hears of events, and how that goes."""

from __future__ import annotations

from uuid import UUID

from litestar.params import FromPath

from rota.operations.rota import Rota
from rota.operations.webhooks import KINDS
from rota.server.api import webhooks as api
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
    found = await api.list_webhooks.fn(tenant)
    return await show(
        request, "webhooks.html", webhooks=found.items, allowed=found.allowed, kinds=KINDS,
        secret=secret, problem=problem, status=200 if problem is None else 422,
        how=Copyable(
            cli=cli("webhooks", "add", "https://example.org/hook", "--kind", "failed"),
            curl=curl("POST", "/v1/webhooks", {"url": "https://example.org/hook"}),
            python=python('await app.webhooks.add("https://example.org/hook", kinds=["failed"])'),
        ),
    )  # fmt: skip


@action("/webhooks", policy=ADMIN)
async def add_webhook(request: RotaRequest, tenant: TenantDep) -> Html:
    """The page that answers is the only place where its secret is ever seen."""
    fields = await Fields.of(request)
    try:
        with telling_why():
            said = convert(
                {"url": fields.text("url"), "kinds": fields.several("kind"),
                 "format": fields.text("format")},
                WebhookRequest,
            )  # fmt: skip
            made = await api.add_webhook.fn(tenant, said)
    except Wrong as wrong:
        return await _shown(request, tenant, problem=str(wrong))
    return await _shown(request, tenant, secret=made.secret)


@action("/webhooks/{webhook_id:uuid}/pause", policy=ADMIN)
async def pause(request: RotaRequest, tenant: TenantDep, webhook_id: FromPath[UUID]) -> Back:
    await api.pause_webhook.fn(tenant, webhook_id)
    return back(request, "/webhooks", "Paused: events of meanwhile are not made up for.")


@action("/webhooks/{webhook_id:uuid}/resume", policy=ADMIN)
async def resume(request: RotaRequest, tenant: TenantDep, webhook_id: FromPath[UUID]) -> Back:
    await api.resume_webhook.fn(tenant, webhook_id)
    return back(request, "/webhooks", "It hears of events again.")


@action("/webhooks/{webhook_id:uuid}/test", policy=ADMIN)
async def test(request: RotaRequest, tenant: TenantDep, webhook_id: FromPath[UUID]) -> Back:
    job = await api.test_webhook.fn(tenant, webhook_id)
    told = "A test event is on its way: this is the job that brings it."
    return back(request, f"/jobs/{job.id}", told)


@action("/webhooks/{webhook_id:uuid}/remove", policy=ADMIN)
async def remove(request: RotaRequest, tenant: TenantDep, webhook_id: FromPath[UUID]) -> Back:
    await api.remove_webhook.fn(tenant, webhook_id)
    return back(request, "/webhooks", "It is removed.")


ROUTES = [list_webhooks, add_webhook, pause, resume, test, remove]
