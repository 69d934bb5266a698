"""REST routes of endpoints and webhooks, to which Rota sends requests. Only admins change them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

import msgspec
from litestar import Response, delete, get, patch, post
from litestar.params import FromPath, JSONBody, PathParameter
from msgspec import UNSET, Meta, UnsetType

from rota.client.wire import EndpointList, WebhookList
from rota.core.administration import (
    EndpointStatus,
    Format,
    NewEndpoint,
    NewWebhook,
    RetryNumbers,
    Webhook,
)
from rota.model import Accepted, GuaranteeName, JobSummary
from rota.operations.job_request import Name
from rota.operations.webhooks import WEBHOOK_TASK, Kind
from rota.server.policy import ADMIN, OPERATOR
from rota.server.remote_workers.messages import RetryRequest
from rota.server.requests import TenantDep

EndpointName = Annotated[str, PathParameter(max_length=100)]
Url = Annotated[str, Meta(min_length=1, max_length=2_000)]
Secret = Annotated[str, Meta(min_length=16, max_length=200)]
Timeout = Annotated[float, Meta(gt=0, le=2_592_000)]
Needs = Annotated[list[Name], Meta(max_length=20)]
Priority = Annotated[int, Meta(ge=-1000, le=1000)]


class EndpointRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """An endpoint to add. `timeout`: seconds for an answer; `callback_timeout`: for the callback, after
    a 202. `secret` is generated if it isn't given."""

    name: Name
    url: Url
    secret: Secret | None = None
    queue: Name = "default"
    needs: Needs = []
    priority: Priority = 0
    guarantee: GuaranteeName = "at_least_once"
    retry: RetryRequest = msgspec.field(default_factory=RetryRequest)
    timeout: Timeout = 30.0
    callback_timeout: Timeout = 3600.0


class EndpointChange(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The fields to change."""

    url: Url | UnsetType = UNSET
    secret: Secret | UnsetType = UNSET
    queue: Name | UnsetType = UNSET
    needs: Needs | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    guarantee: GuaranteeName | UnsetType = UNSET
    retry: RetryRequest | UnsetType = UNSET
    timeout: Timeout | UnsetType = UNSET
    callback_timeout: Timeout | UnsetType = UNSET


@get("/v1/endpoints", policy=OPERATOR, summary="List the endpoints")
async def list_endpoints(tenant: TenantDep) -> EndpointList:
    """List the stored endpoints, without secrets. Endpoints that code declares are not included."""
    return EndpointList(await tenant.endpoints.list())


@get("/v1/endpoints/{name:str}", policy=OPERATOR, summary="Get an endpoint")
async def get_endpoint(tenant: TenantDep, name: EndpointName) -> EndpointStatus:
    return await tenant.endpoints.get(name)


@post("/v1/endpoints", policy=ADMIN, summary="Add an endpoint", status_code=201)
async def add_endpoint(tenant: TenantDep, data: JSONBody[EndpointRequest]) -> NewEndpoint:
    """Make an HTTP endpoint a task: every worker of the namespace pushes its jobs, within seconds."""
    return await tenant.endpoints.add(
        data.name, data.url, secret=data.secret, queue=data.queue, needs=data.needs,
        priority=data.priority, guarantee=data.guarantee,
        retry=RetryNumbers(**msgspec.structs.asdict(data.retry)),
        timeout=data.timeout, callback_timeout=data.callback_timeout,
    )  # fmt: skip


@patch("/v1/endpoints/{name:str}", policy=ADMIN, summary="Change an endpoint")
async def change_endpoint(
    tenant: TenantDep, name: EndpointName, data: JSONBody[EndpointChange]
) -> EndpointStatus:
    """Change an endpoint. The change applies to pushes within seconds."""
    changes = {field: value for field, value in msgspec.structs.asdict(data).items()
               if value is not UNSET}  # fmt: skip
    if isinstance(data.retry, RetryRequest):
        changes["retry"] = RetryNumbers(**msgspec.structs.asdict(data.retry))
    return await tenant.endpoints.change(name, **changes)


@delete("/v1/endpoints/{name:str}", policy=ADMIN, summary="Remove an endpoint", status_code=200)
async def remove_endpoint(tenant: TenantDep, name: EndpointName) -> Response[EndpointStatus]:
    """Remove an endpoint. Its jobs stay in their queue."""
    return Response(await tenant.endpoints.remove(name))


class WebhookRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A webhook to add. `kinds`: the kinds of events, all by default. `format`: the event itself, or a
    sentence for Slack. `secret` is generated if it isn't given."""

    url: Annotated[str, Meta(min_length=1, max_length=2_000)]
    kinds: Annotated[list[Kind], Meta(max_length=20)] = []
    format: Format = "json"
    secret: Annotated[str, Meta(min_length=16, max_length=200)] | None = None


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
    """Send a test event as a job, like all deliveries: `GET /v1/jobs/{id}` shows its outcome."""
    handle = await tenant.webhooks.test(webhook_id)
    return Accepted(handle.id, WEBHOOK_TASK)


@delete("/v1/webhooks/{webhook_id:uuid}", policy=ADMIN, summary="Remove a webhook", status_code=200)
async def remove_webhook(tenant: TenantDep, webhook_id: FromPath[UUID]) -> Response[Webhook]:
    return Response(await tenant.webhooks.remove(webhook_id))


@get(
    "/v1/webhooks/{webhook_id:uuid}/deliveries",
    policy=ADMIN,
    summary="List deliveries of a webhook",
)
async def list_deliveries(tenant: TenantDep, webhook_id: FromPath[UUID]) -> Sequence[JobSummary]:
    """The newest 50 of the last week, as the jobs that they are."""
    return await tenant.webhooks.deliveries(webhook_id)


@post(
    "/v1/webhooks/deliveries/{job_id:uuid}/redeliver",
    policy=ADMIN,
    summary="Send a delivery once more",
    status_code=202,
)
async def redeliver(tenant: TenantDep, job_id: FromPath[UUID]) -> Accepted:
    """Send its event again, as a new job. The receiver sees the same event id."""
    handle = await tenant.webhooks.redeliver(job_id)
    return Accepted(handle.id, WEBHOOK_TASK)


ROUTES = [
    list_endpoints,
    get_endpoint,
    add_endpoint,
    change_endpoint,
    remove_endpoint,
    list_webhooks,
    get_webhook,
    add_webhook,
    pause_webhook,
    resume_webhook,
    test_webhook,
    remove_webhook,
    list_deliveries,
    redeliver,
]
