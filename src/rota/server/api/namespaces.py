"""Namespaces and their limits. One sees those one has a role in; admins of everything set limits."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import Response, delete, get, put
from litestar.params import FromPath, JSONBody

from rota.config import check_name
from rota.errors import NotFound
from rota.server.dependencies import ContextDep, PrincipalDep
from rota.server.policy import EVERYWHERE, VIEWER
from rota.server.requests import RotaRequest
from rota.store.quotas import Limits, Namespace

_BIGINT = 2**63 - 1
Count = Annotated[int, msgspec.Meta(ge=0, le=_BIGINT)]


class LimitsRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """null: no limit."""

    max_jobs: Count | None = None
    max_payload_bytes: Count | None = None
    submits_per_second: Annotated[float, msgspec.Meta(gt=0, le=1e9)] | None = None


class Namespaces(msgspec.Struct):
    items: list[Namespace]


@get("/v1/namespaces", policy=VIEWER, summary="The namespaces you have a role in")
async def list_namespaces(context: ContextDep, principal: PrincipalDep) -> Namespaces:
    """Those that have limits or were used."""
    found = await context.quotas.store.list_namespaces()
    identity = principal.identity
    return Namespaces([each for each in found if identity.role_in(each.name) is not None])


@get("/v1/namespaces/{name:str}", policy=VIEWER, summary="A namespace and its limits")
async def get_namespace(
    context: ContextDep, principal: PrincipalDep, name: FromPath[str]
) -> Namespace:
    """Also your own when it was never used: it has no limits."""
    unknown = NotFound(f"there is no namespace {name!r}")
    if principal.identity.role_in(name) is None:
        raise unknown
    store = context.quotas.store
    if found := await store.get_namespace(check_name("namespace", name)):
        return found
    if used := next((each for each in await store.list_namespaces() if each.name == name), None):
        return used
    if name not in (principal.namespace, *principal.identity.memberships):
        raise unknown
    return Namespace(
        name=name, created_at=None, limits=Limits(), stored_jobs=None, stored_bytes=None
    )


@put("/v1/namespaces/{name:str}", policy=EVERYWHERE, summary="Set a namespace's limits")
async def put_namespace(
    request: RotaRequest, context: ContextDep, name: FromPath[str], data: JSONBody[LimitsRequest]
) -> Namespace:
    """All of them at once: what isn't given has no limit. They hold within five seconds."""
    check_name("namespace", name)
    limits = Limits(**msgspec.structs.asdict(data))
    store = context.quotas.store
    async with request.changing("limit", f"namespace {name}", namespace=name) as change:
        change.before = await store.get_namespace(name)
        change.after = after = await store.put_namespace(name, limits)
    context.quotas.forget()
    return after


@delete("/v1/namespaces/{name:str}", policy=EVERYWHERE, summary="Take a namespace's limits away",
        status_code=200)  # fmt: skip
async def remove_namespace(
    request: RotaRequest, context: ContextDep, name: FromPath[str]
) -> Response[Namespace]:
    """Its jobs stay."""
    check_name("namespace", name)
    async with request.changing("unlimit", f"namespace {name}", namespace=name) as change:
        change.before = before = await context.quotas.store.remove_namespace(name)
        if before is None:
            raise NotFound(f"namespace {name!r} has no limits")
    context.quotas.forget()
    return Response(before)


ROUTES = (list_namespaces, get_namespace, put_namespace, remove_namespace)
