"""Who am I, and out."""

from __future__ import annotations

from datetime import datetime

import msgspec
from litestar import Response, get, post

from rota.server.authorization import (
    CSRF_FIELD,
    check_csrf,
    cookie_name,
    is_secure,
    session_secret,
)
from rota.server.dependencies import ContextDep, PrincipalDep
from rota.server.identity.sessions import csrf_token
from rota.server.policy import PUBLIC, VIEWER
from rota.server.requests import RotaRequest


class Me(msgspec.Struct, kw_only=True):
    """`csrf` goes into X-Rota-CSRF with every change that is made by cookie; null for a token."""

    name: str
    kind: str
    namespace: str
    role: str
    namespaces: dict[str, str]
    scopes: list[str]
    prefix: str | None
    expires_at: datetime | None
    csrf: str | None


@get("/v1/session", policy=VIEWER, summary="Who you are")
async def get_session(request: RotaRequest, principal: PrincipalDep) -> Me:
    """By token or by session, and what you may do where."""
    identity = principal.identity
    secret = session_secret(request) if identity.kind == "session" else None
    return Me(
        name=identity.name, kind=identity.kind, namespace=principal.namespace,
        role=principal.role.label,
        namespaces={name: role.label for name, role in sorted(identity.memberships.items())},
        scopes=list(principal.scopes), prefix=identity.prefix, expires_at=identity.expires_at,
        csrf=csrf_token(secret) if secret else None,
    )  # fmt: skip


@post("/logout", policy=PUBLIC, summary="Log out", status_code=200)
async def logout(request: RotaRequest, context: ContextDep) -> Response[None]:
    """Ends the session of the cookie, at once here and within five seconds elsewhere. A page's form is
    answered with the way to the page to log in."""
    secret = session_secret(request)
    fields = await request.fields()
    if secret is not None:
        identity = await context.sessions.identify(secret)
        if identity is not None:
            check_csrf(request, fields.get(CSRF_FIELD, [None])[0])
            async with request.changing("logout", f"session {identity.id}") as change:
                change.actor = request.actor(identity.name, identity.via)
                await context.sessions.end(secret)
    answer: Response[None] = Response(None)
    if fields:
        answer = Response(None, status_code=303, headers={"Location": "/login"})
    answer.delete_cookie(cookie_name(is_secure(request)), path="/")
    return answer


ROUTES = (get_session, logout)
