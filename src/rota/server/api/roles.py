"""REST routes of roles: the built-in ones, and those of the installation."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import delete, get, put
from litestar.params import FromPath, JSONBody
from litestar.response import Response
from msgspec import Meta

from rota.client.wire import RoleList
from rota.core.administration import RoleInfo
from rota.server.policy import ADMIN, EVERYWHERE
from rota.server.requests import ContextDep, PrincipalDep

Names = Annotated[list[Annotated[str, Meta(max_length=200)]], Meta(max_length=200)]


class RoleRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The permissions and limits of a role, all at once: one that is not given is empty."""

    permissions: Annotated[
        Names, Meta(description="`queues:write`, or `queues` for all of queues.", min_length=1)
    ]
    namespaces: Annotated[Names, Meta(description="Where it holds; empty: everywhere.")] = []
    tasks: Annotated[Names, Meta(description="Whose jobs it may submit; empty: all.")] = []
    queues: Annotated[Names, Meta(description="To which it may submit jobs; empty: all.")] = []
    description: Annotated[str, Meta(max_length=500)] = ""


@get("/v1/roles", policy=ADMIN, summary="List the roles")
async def list_roles(context: ContextDep, principal: PrincipalDep) -> RoleList:
    """List the built-in roles, then those of the installation that hold in the namespace, and all
    permissions that there are."""
    roles = context.installation.roles
    return RoleList(await roles.list(visible_to=principal), roles.permissions())


@get("/v1/roles/{name:str}", policy=ADMIN, summary="Get a role")
async def get_role(context: ContextDep, principal: PrincipalDep, name: FromPath[str]) -> RoleInfo:
    return await context.installation.roles.get(name, visible_to=principal)


@put("/v1/roles/{name:str}", policy=EVERYWHERE, summary="Define a role", status_code=200)
async def put_role(
    context: ContextDep, principal: PrincipalDep, name: FromPath[str], data: JSONBody[RoleRequest]
) -> RoleInfo:
    """Define a role, or replace its definition. It can permit no more than you may do yourself. Who has
    it has the new permissions within a second, on every server."""
    return await context.installation.roles.set(name, **msgspec.structs.asdict(data), by=principal)


@delete("/v1/roles/{name:str}", policy=EVERYWHERE, summary="Delete a role", status_code=200)
async def delete_role(
    context: ContextDep, principal: PrincipalDep, name: FromPath[str]
) -> Response[RoleInfo]:
    """Delete a role that no user, token, session or link has any more; 409 otherwise."""
    return Response(await context.installation.roles.delete(name, by=principal))


ROUTES = [list_roles, get_role, put_role, delete_role]
