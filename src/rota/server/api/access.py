"""REST routes of tokens, sessions, namespaces and the audit log."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from litestar import Response, delete, get, post, put
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from rota.client.wire import NamespaceList
from rota.core.access import Principal
from rota.core.administration import (
    AuditEntry,
    CreatedToken,
    Limits,
    Namespace,
    OpenSession,
    TokenInfo,
)
from rota.errors import AccessDenied
from rota.operations.events import AuditLog
from rota.operations.rota import Rota
from rota.server.api.jobs import QueryMoment, zoned
from rota.server.api.pages import Cursor, Limit, Page, make_page, read_cursor
from rota.server.context import ServerContext
from rota.server.policy import ADMIN, EVERYWHERE, VIEWER
from rota.server.requests import ContextDep, PrincipalDep, TenantDep

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


# One role, or several with a comma between them.
RoleNames = Annotated[
    str,
    msgspec.Meta(pattern="^[A-Za-z0-9_.:,-]+$", max_length=2000, description="Or several: `a,b`."),
]


class TokenRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A token to create."""

    name: Text
    role: RoleNames
    scopes: Annotated[list[str], msgspec.Meta(max_length=50)] = []
    tasks: Annotated[
        list[str], msgspec.Meta(max_length=100, description="The tasks whose jobs it may submit.")
    ] = []
    queues: Annotated[
        list[str], msgspec.Meta(max_length=100, description="The queues it may submit jobs to.")
    ] = []
    expires_at: datetime | None = None
    everywhere: bool = False  # in all namespaces, not only in that of the request
    submits_per_second: (
        Annotated[
            float, msgspec.Meta(gt=0, le=1e9, description="Jobs that its requests may submit.")
        ]
        | None
    ) = None


Everywhere = Annotated[
    bool, QueryParameter(description="Of all namespaces: for an admin of all of them.")
]


def _within(principal: Principal, everywhere: bool) -> str | None:
    """Return the namespace to list; None: all of them."""
    if everywhere and not principal.everywhere:
        raise AccessDenied("only an admin of all namespaces may list them all", field="everywhere")
    return None if everywhere else principal.namespace


async def token_page(
    context: ServerContext, namespace: str | None, limit: int, cursor: str | None, *,
    revoked: bool = False,
) -> Page[TokenInfo]:  # fmt: skip
    found = await context.installation.tokens.list(
        namespace, revoked=revoked, limit=limit + 1,
        before=read_cursor(cursor, tuple[datetime, UUID]),
    )  # fmt: skip
    return make_page(found, limit, lambda token: (token.created_at, token.id))


@get("/v1/tokens", policy=ADMIN, summary="List the tokens of the namespace")
async def list_tokens(
    context: ContextDep, principal: PrincipalDep, limit: Limit = 50, cursor: Cursor = None,
    revoked: FromQuery[bool] = False, everywhere: Everywhere = False,
) -> Page[TokenInfo]:  # fmt: skip
    """List tokens, newest first, without their secrets, which are not stored."""
    return await token_page(context, _within(principal, everywhere), limit, cursor, revoked=revoked)


@post("/v1/tokens", policy=ADMIN, summary="Create a token")
async def add_token(
    context: ContextDep, principal: PrincipalDep, data: JSONBody[TokenRequest]
) -> CreatedToken:
    """The token can do no more than its creator, and ends no later than the token that creates it."""
    return await context.installation.tokens.create(
        **msgspec.structs.asdict(data), namespace=principal.namespace, by=principal
    )


@delete("/v1/tokens/{prefix:str}", policy=ADMIN, summary="Revoke a token", status_code=200)
async def revoke_token(
    context: ContextDep, principal: PrincipalDep, prefix: FromPath[str],
    made: Annotated[
        bool, QueryParameter(description="Also revoke the tokens that were created with it.")
    ] = False,
) -> Response[TokenInfo]:  # fmt: skip
    """Every server refuses it within five seconds."""
    revoked = await context.installation.tokens.revoke(prefix, made=made, by=principal)
    return Response(revoked[0])


@get("/v1/sessions", policy=ADMIN, summary="List the sessions of logged-in browsers")
async def list_sessions(
    context: ContextDep, principal: PrincipalDep, limit: Limit = 50, cursor: Cursor = None
) -> Page[OpenSession]:
    """List sessions of users with a role in the namespace and of login links to it, newest first."""
    found = await context.installation.sessions.list(
        principal.reach, limit=limit + 1, before=read_cursor(cursor, tuple[datetime, UUID])
    )
    return make_page(found, limit, lambda session: (session.created_at, session.id))


@delete("/v1/sessions/{session_id:uuid}", policy=ADMIN, summary="End a session", status_code=204)
async def end_session(
    context: ContextDep, principal: PrincipalDep, session_id: FromPath[UUID]
) -> None:
    """Every server refuses its cookie within five seconds. The session of a user who also has a role in
    other namespaces can only be ended by an admin of all namespaces."""
    await context.installation.sessions.end([session_id], by=principal)


@get("/v1/namespaces", policy=VIEWER, summary="List the namespaces you have a role in")
async def list_namespaces(context: ContextDep, principal: PrincipalDep) -> NamespaceList:
    """List the namespaces that have limits or were used, and name those that are encrypted."""
    found = await context.installation.namespaces.list(principal)
    encrypted = await context.installation.namespaces.encrypted()
    return NamespaceList(found, sorted(each.name for each in found if each.name in encrypted))


@get("/v1/namespaces/{name:str}", policy=VIEWER, summary="Get a namespace and its limits")
async def get_namespace(
    context: ContextDep, principal: PrincipalDep, name: FromPath[str]
) -> Namespace:
    """Get a namespace. Your own exists even if it was never used."""
    return await context.installation.namespaces.get(name, principal)


@put("/v1/namespaces/{name:str}", policy=EVERYWHERE, summary="Set a namespace's limits")
async def put_namespace(
    context: ContextDep, name: FromPath[str], data: JSONBody[Limits]
) -> Namespace:
    """Set all limits at once: a limit that is not given is removed. They apply within five seconds."""
    return await context.installation.namespaces.set_limits(name, data)


@delete("/v1/namespaces/{name:str}", policy=EVERYWHERE, summary="Remove a namespace's limits",
        status_code=200)  # fmt: skip
async def remove_namespace(context: ContextDep, name: FromPath[str]) -> Response[Namespace]:
    """Remove the limits. The jobs of the namespace are kept."""
    return Response(await context.installation.namespaces.remove_limits(name))


async def audit_page(
    tenant: Rota, limit: int, cursor: str | None, **filters: Any
) -> Page[AuditEntry]:
    return await _audit_page(tenant.audit, tenant.namespace, limit, cursor, filters)


async def _audit_page(
    log: AuditLog, namespace: str | None, limit: int, cursor: str | None, filters: dict[str, Any]
) -> Page[AuditEntry]:
    if cursor is not None:
        filters["before"] = read_cursor(cursor, int)
    found = await log.list(namespace, limit=limit + 1, **filters)
    return make_page(found, limit, lambda entry: entry.id)


@get("/v1/audit", policy=ADMIN, summary="List changes in the namespace")
async def list_changes(
    context: ContextDep, tenant: TenantDep, principal: PrincipalDep, limit: Limit = 50,
    cursor: Cursor = None,
    action: FromQuery[str | None] = None, actor: FromQuery[str | None] = None,
    subject: FromQuery[str | None] = None,
    interface: FromQuery[Literal["rest", "dashboard", "cli", "python"] | None] = None,
    since: QueryMoment = None, until: QueryMoment = None,
    before: Annotated[int | None, QueryParameter(ge=0, le=2**62)] = None,
    everywhere: Everywhere = False,
) -> Page[AuditEntry]:  # fmt: skip
    """List changes, newest first. `since` is included, `until` is not; `before` is an id."""
    filters = {
        "action": action, "actor": actor, "subject": subject, "interface": interface,
        "since": zoned("since", since), "until": zoned("until", until), "before": before,
    }  # fmt: skip
    namespace = _within(principal, everywhere)
    log = tenant.audit if namespace is not None else context.installation.audit
    return await _audit_page(log, namespace, limit, cursor, filters)


ROUTES = [
    list_tokens,
    add_token,
    revoke_token,
    list_sessions,
    end_session,
    list_namespaces,
    get_namespace,
    put_namespace,
    remove_namespace,
    list_changes,
]
