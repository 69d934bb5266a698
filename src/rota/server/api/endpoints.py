"""REST routes of endpoints. Admins decide where payloads are sent; operators see it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from litestar import Response, delete, get, patch, post
from litestar.params import JSONBody, PathParameter
from msgspec import UNSET, Meta, UnsetType

from rota.model import GuaranteeName
from rota.operations.endpoints import EndpointStatus, NewEndpoint
from rota.operations.job_request import Name
from rota.server.dependencies import TenantDep
from rota.server.policy import ADMIN, OPERATOR
from rota.store.endpoints import RetryNumbers

EndpointName = Annotated[str, PathParameter(max_length=100)]
Url = Annotated[str, Meta(min_length=1, max_length=2_000)]
Secret = Annotated[str, Meta(min_length=16, max_length=200)]
Seconds = Annotated[float, Meta(gt=0, le=2_592_000)]
Needs = Annotated[list[Name], Meta(max_length=20)]
Priority = Annotated[int, Meta(ge=-1000, le=1000)]
Number = Annotated[float, Meta(ge=0, le=1e9)]


class RetryRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The pause before attempt n + 1 is `base * factor ** (n - 1)` seconds, at most `cap`."""

    max_attempts: Annotated[int, Meta(ge=1, le=32_000)] = 5
    base: Number = 2.0
    factor: Annotated[float, Meta(ge=1, le=1000)] = 2.0
    cap: Number = 3600.0
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.2

    def numbers(self) -> RetryNumbers:
        return RetryNumbers(**msgspec.structs.asdict(self))


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
    timeout: Seconds = 30.0
    callback_timeout: Seconds = 3600.0


class EndpointChange(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The fields to change."""

    url: Url | UnsetType = UNSET
    secret: Secret | UnsetType = UNSET
    queue: Name | UnsetType = UNSET
    needs: Needs | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    guarantee: GuaranteeName | UnsetType = UNSET
    retry: RetryRequest | UnsetType = UNSET
    timeout: Seconds | UnsetType = UNSET
    callback_timeout: Seconds | UnsetType = UNSET


class EndpointList(msgspec.Struct, frozen=True):
    items: Sequence[EndpointStatus]


@get("/v1/endpoints", policy=OPERATOR, summary="List the endpoints")
async def list_endpoints(tenant: TenantDep) -> EndpointList:
    """The stored endpoints, without their secrets. Endpoints that code declares are not included."""
    return EndpointList(await tenant.endpoints.list())


@get("/v1/endpoints/{name:str}", policy=OPERATOR, summary="Get an endpoint")
async def get_endpoint(tenant: TenantDep, name: EndpointName) -> EndpointStatus:
    return await tenant.endpoints.get(name)


@post("/v1/endpoints", policy=ADMIN, summary="Add an endpoint", status_code=201)
async def add_endpoint(tenant: TenantDep, data: JSONBody[EndpointRequest]) -> NewEndpoint:
    """Make an HTTP endpoint a task: every worker of the namespace pushes its jobs, within seconds."""
    return await tenant.endpoints.add(
        data.name, data.url, secret=data.secret, queue=data.queue, needs=data.needs,
        priority=data.priority, guarantee=data.guarantee, retry=data.retry.numbers(),
        timeout=data.timeout, callback_timeout=data.callback_timeout,
    )  # fmt: skip


@patch("/v1/endpoints/{name:str}", policy=ADMIN, summary="Change an endpoint")
async def change_endpoint(
    tenant: TenantDep, name: EndpointName, data: JSONBody[EndpointChange]
) -> EndpointStatus:
    """It holds for pushes from a few seconds later on."""
    changes = {field: value for field, value in msgspec.structs.asdict(data).items()
               if value is not UNSET}  # fmt: skip
    if isinstance(data.retry, RetryRequest):
        changes["retry"] = data.retry.numbers()
    return await tenant.endpoints.change(name, **changes)


@delete("/v1/endpoints/{name:str}", policy=ADMIN, summary="Remove an endpoint", status_code=200)
async def remove_endpoint(tenant: TenantDep, name: EndpointName) -> Response[EndpointStatus]:
    """Its jobs stay in their queue."""
    return Response(await tenant.endpoints.remove(name))


ROUTES = [list_endpoints, get_endpoint, add_endpoint, change_endpoint, remove_endpoint]
