"""Webhooks: who hears of events. For admins: it is about what goes out, and some URLs are secrets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from litestar import Response, delete, get, post
from litestar.params import FromPath, JSONBody
from msgspec import Meta

from rota.errors import NotFound
from rota.model import Accepted
from rota.operations.rota import Rota
from rota.server.dependencies import TenantDep
from rota.server.policy import ADMIN
from rota.server.problems import Problem
from rota.store.webhooks import Webhook

Kind = Literal[
    "failed", "dead_lettered", "timed_out", "slow", "slower", "late", "deadline_missed", "queue_lag",
    "missed", "overran", "set_aside", "node_dead",
]  # fmt: skip


class WebhookRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`kinds`: which events, all by default. `format`: the event itself, or a sentence for Slack.
    `secret` is made up if it isn't given."""

    url: Annotated[str, Meta(min_length=1, max_length=2_000)]
    kinds: Annotated[list[Kind], Meta(max_length=20)] = []
    format: Literal["json", "slack"] = "json"
    secret: Annotated[str, Meta(min_length=16, max_length=200)] | None = None


class WebhookCreated(msgspec.Struct, frozen=True):
    """`secret` is shown this once."""

    secret: str
    webhook: Webhook


class WebhookList(msgspec.Struct, frozen=True):
    """`allowed`: where requests may go besides public addresses."""

    items: Sequence[Webhook]
    allowed: Sequence[str]


@get("/v1/webhooks", policy=ADMIN, summary="Who hears of events")
async def list_webhooks(tenant: TenantDep) -> WebhookList:
    return WebhookList(await tenant.webhooks.list(), await tenant.webhooks.allowed())


@get("/v1/webhooks/{webhook_id:uuid}", policy=ADMIN, summary="One webhook")
async def get_webhook(tenant: TenantDep, webhook_id: FromPath[UUID]) -> Webhook:
    return await _find(tenant, webhook_id)


@post("/v1/webhooks", policy=ADMIN, summary="Send events to a URL", status_code=201)
async def add_webhook(tenant: TenantDep, data: JSONBody[WebhookRequest]) -> WebhookCreated:
    """From now on. Where it may go besides public addresses is decided on the command line."""
    if any(each.url == data.url for each in await tenant.webhooks.list()):
        raise Problem(409, "exists", "there is a webhook to this URL already")
    new = await tenant.webhooks.add(
        data.url, kinds=data.kinds, form=data.format, secret=data.secret
    )
    return WebhookCreated(new.secret, await _find(tenant, new.id))


@post(
    "/v1/webhooks/{webhook_id:uuid}/pause", policy=ADMIN, summary="Pause a webhook", status_code=200
)
async def pause_webhook(tenant: TenantDep, webhook_id: FromPath[UUID]) -> Webhook:
    """Events of meanwhile are not made up for."""
    await _find(tenant, webhook_id)
    await tenant.webhooks.pause(webhook_id)
    return await _find(tenant, webhook_id)


@post(
    "/v1/webhooks/{webhook_id:uuid}/resume",
    policy=ADMIN,
    summary="Resume a webhook",
    status_code=200,
)
async def resume_webhook(tenant: TenantDep, webhook_id: FromPath[UUID]) -> Webhook:
    await _find(tenant, webhook_id)
    await tenant.webhooks.resume(webhook_id)
    return await _find(tenant, webhook_id)


@post(
    "/v1/webhooks/{webhook_id:uuid}/test",
    policy=ADMIN,
    summary="Send a test event",
    status_code=202,
)
async def test_webhook(tenant: TenantDep, webhook_id: FromPath[UUID]) -> Accepted:
    """As a job, like all deliveries: `GET /v1/jobs/{id}` tells what came of it."""
    await _find(tenant, webhook_id)
    handle = await tenant.webhooks.test(webhook_id)
    return Accepted(handle.id, "rota.webhook")


@delete("/v1/webhooks/{webhook_id:uuid}", policy=ADMIN, summary="Remove a webhook", status_code=200)
async def remove_webhook(tenant: TenantDep, webhook_id: FromPath[UUID]) -> Response[Webhook]:
    before = await _find(tenant, webhook_id)
    await tenant.webhooks.remove(webhook_id)
    return Response(before)


async def _find(tenant: Rota, id: UUID) -> Webhook:
    for webhook in await tenant.webhooks.list():
        if webhook.id == id:
            return webhook
    raise NotFound(f"there is no webhook {id} in namespace {tenant.namespace!r}")


ROUTES = [
    list_webhooks, get_webhook, add_webhook, pause_webhook, resume_webhook, test_webhook,
    remove_webhook,
]  # fmt: skip
