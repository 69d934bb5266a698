"""REST routes of namespaces. Only admins of all namespaces set limits."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import Response, delete, get, put
from litestar.params import FromPath, JSONBody

from rota.server.dependencies import ContextDep, PrincipalDep
from rota.server.policy import EVERYWHERE, VIEWER
from rota.store.quotas import Limits, Namespace

_BIGINT = 2**63 - 1
Count = Annotated[int, msgspec.Meta(ge=0, le=_BIGINT)]


class LimitsRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The limits of a namespace; null: no limit."""

    max_jobs: Count | None = None
    max_payload_bytes: Count | None = None
    submits_per_second: Annotated[float, msgspec.Meta(gt=0, le=1e9)] | None = None

    def limits(self) -> Limits:
        return Limits(**msgspec.structs.asdict(self))


class Namespaces(msgspec.Struct):
    items: list[Namespace]


@get("/v1/namespaces", policy=VIEWER, summary="List the namespaces you have a role in")
async def list_namespaces(context: ContextDep, principal: PrincipalDep) -> Namespaces:
    """Those that have limits or were used."""
    return Namespaces(await context.installation.namespaces.list(principal))


@get("/v1/namespaces/{name:str}", policy=VIEWER, summary="Get a namespace and its limits")
async def get_namespace(
    context: ContextDep, principal: PrincipalDep, name: FromPath[str]
) -> Namespace:
    """Your own namespace is there even if it was never used."""
    return await context.installation.namespaces.get(name, principal)


@put("/v1/namespaces/{name:str}", policy=EVERYWHERE, summary="Set a namespace's limits")
async def put_namespace(
    context: ContextDep, name: FromPath[str], data: JSONBody[LimitsRequest]
) -> Namespace:
    """All of them at once: what isn't given has no limit. They hold within five seconds."""
    return await context.installation.namespaces.set_limits(name, data.limits())


@delete("/v1/namespaces/{name:str}", policy=EVERYWHERE, summary="Remove a namespace's limits",
        status_code=200)  # fmt: skip
async def remove_namespace(context: ContextDep, name: FromPath[str]) -> Response[Namespace]:
    """Its jobs stay."""
    return Response(await context.installation.namespaces.remove_limits(name))


ROUTES = (list_namespaces, get_namespace, put_namespace, remove_namespace)
