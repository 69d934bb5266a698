"""REST routes of webhooks. For admins only: they decide where data goes, and some URLs are secrets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

import msgspec
from litestar import Response, delete, get, post
from litestar.params import FromPath, JSONBody
from msgspec import Meta

from rota.model import Accepted
from rota.operations.webhooks import WEBHOOK_TASK, Format, Kind, NewWebhook
from rota.server.dependencies import TenantDep
from rota.server.policy import ADMIN
from rota.store.webhooks import Webhook


class WebhookRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A webhook to add. `kinds`: the kinds of events, all by default. `format`: the event itself, or a
    sentence for Slack. `secret` is generated if it isn't given."""

    url: Annotated[str, Meta(min_length=1, max_length=2_000)]
    kinds: Annotated[list[Kind], Meta(max_length=20)] = []
    format: Format = "json"
    secret: Annotated[str, Meta(min_length=16, max_length=200)] | None = None


class WebhookList(msgspec.Struct, frozen=True):
    """Webhooks; `allowed`: hosts that requests may go to besides public addresses."""

    items: Sequence[Webhook]
    allowed: Sequence[str]


@get("/v1/webhooks", policy=ADMIN, summary="List webhooks")
async def list_webhooks(tenant: TenantDep) -> WebhookList:
    return WebhookList(await tenant.webhooks.list(), await tenant.webhooks.allowed())


@get("/v1/webhooks/{webhook_id:uuid}", policy=ADMIN, summary="Get a webhook")
async def get_webhook(tenant: TenantDep, webhook_id: FromPath[UUID]) -> Webhook:
    return await tenant.webhooks.get(webhook_id)


@post("/v1/webhooks", policy=ADMIN, summary="Add a webhook", status_code=201)
async def add_webhook(tenant: TenantDep, data: JSONBody[WebhookRequest]) -> NewWebhook:
    """Send events to a URL from now on. Addresses that aren't public are allowed with `rota webhooks
    allow`."""
    return await tenant.webhooks.add(
        data.url, kinds=data.kinds, form=data.format, secret=data.secret
    )


@post(
    "/v1/webhooks/{webhook_id:uuid}/pause", policy=ADMIN, summary="Pause a webhook", status_code=200
)
async def pause_webhook(tenant: TenantDep, webhook_id: FromPath[UUID]) -> Webhook:
    """Events that happen during the pause are not sent later."""
    return await tenant.webhooks.pause(webhook_id)


@post(
    "/v1/webhooks/{webhook_id:uuid}/resume",
    policy=ADMIN,
    summary="Resume a webhook",
    status_code=200,
)
async def resume_webhook(tenant: TenantDep, webhook_id: FromPath[UUID]) -> Webhook:
    return await tenant.webhooks.resume(webhook_id)


@post(
    "/v1/webhooks/{webhook_id:uuid}/test",
    policy=ADMIN,
    summary="Send a test event",
    status_code=202,
)
async def test_webhook(tenant: TenantDep, webhook_id: FromPath[UUID]) -> Accepted:
    """As a job, like all deliveries: `GET /v1/jobs/{id}` shows its outcome."""
    handle = await tenant.webhooks.test(webhook_id)
    return Accepted(handle.id, WEBHOOK_TASK)


@delete("/v1/webhooks/{webhook_id:uuid}", policy=ADMIN, summary="Remove a webhook", status_code=200)
async def remove_webhook(tenant: TenantDep, webhook_id: FromPath[UUID]) -> Response[Webhook]:
    return Response(await tenant.webhooks.remove(webhook_id))


ROUTES = [
    list_webhooks, get_webhook, add_webhook, pause_webhook, resume_webhook, test_webhook,
    remove_webhook,
]  # fmt: skip
