"""Authorize every request: identify its sender and namespace, and check the policy of its route.

Runs after routing, and before the body is read. A bearer token takes precedence over a cookie. With a
cookie, a change must come from a page of this server: it carries the session's CSRF token, and the
origin that the browser sends is this server. A form has the token as a field, which is checked last. The
same holds for those whom a host application has authenticated (`rota.integrations.mount`).
"""

from __future__ import annotations

import hmac
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.types import ASGIApp, Receive, Scope, Send

from rota.config import NAME
from rota.core.access import Identity, Policy, Principal
from rota.server.context import ServerContext, context_of
from rota.server.identity.credentials import csrf_token
from rota.server.policy import SAFE_METHODS, permission_of, policy_of, scope_of
from rota.server.problems import Problem
from rota.server.requests import RotaRequest
from rota.server.strict import check_query, needed_body
from rota.store.changes import acting_as

CSRF_HEADER = "x-rota-csrf"
CSRF_FIELD = "csrf"
NAMESPACE_HEADER = "x-rota-namespace"

AnyConnection = ASGIConnection[Any, Any, Any, Any]


def cookie_name(secure: bool) -> str:
    """Return the name of the cookie. With `__Host-` browsers accept it only over TLS, for this host."""
    return "__Host-rota_session" if secure else "rota_session"


def is_secure(connection: AnyConnection) -> bool:
    """Return whether clients use TLS."""
    public = context_of(connection.app).settings.public_url
    scheme = urlsplit(public).scheme if public else connection.scope.get("scheme", "http")
    return scheme == "https"


class Visitor(NamedTuple):
    """A user whom a host application has authenticated, and the secret of their CSRF tokens."""

    identity: Identity
    secret: str


VISITOR = "rota_visitor"  # in the scope: only the process itself can put it there


def session_secret(connection: AnyConnection) -> str | None:
    visitor: Visitor | None = connection.scope.get(VISITOR)  # type: ignore[assignment]
    if visitor is not None:
        return visitor.secret
    return connection.cookies.get(cookie_name(is_secure(connection)))


def method_of(connection: AnyConnection) -> str:
    return str(connection.scope.get("method", ""))


def gate(app: ASGIApp) -> ASGIApp:
    """Authorize requests as the innermost middleware. The framework would copy handlers for a guard."""

    async def gated(scope: Scope, receive: Receive, send: Send) -> None:
        request = RotaRequest(scope, receive, send)
        handler = scope["route_handler"]
        await authorize(request, handler)
        if request.query_params:
            check_query(handler, request.query_params)
        if (needed := needed_body(handler)) is not None and not await request.body():
            detail, fields = needed
            raise Problem(400, "invalid", detail, fields=fields)
        with acting_as(request.actor()):
            await app(scope, receive, send)

    return gated


async def authorize(connection: AnyConnection, handler: BaseRouteHandler) -> None:
    policy = policy_of(handler)
    if policy is None or policy.role is None:
        return  # public; a route without a policy kept the server from starting
    context = context_of(connection.app)
    identity, by_cookie = await _identify(connection, context)
    by_form = bool(handler.opt.get("form")) and CSRF_HEADER not in connection.headers
    is_change_by_cookie = by_cookie and method_of(connection) not in SAFE_METHODS
    if is_change_by_cookie and not by_form:
        check_csrf(connection)
    principal = _choose(connection, context, identity)
    check_policy(connection, principal, policy)
    state = connection.scope["state"]
    if is_change_by_cookie and by_form:
        state["trusted_body"] = True  # the sender is known, though not yet the page
        check_csrf(connection, await _csrf_field(connection))
    state["principal"] = principal
    connection.scope["user"] = principal
    if context.reading is not None and method_of(connection) not in SAFE_METHODS:
        state["on_answer"] = partial(context.reading.note_change, principal.namespace)


async def authorize_again(request: RotaRequest) -> None:
    """Authorize a long request again, while it is answered."""
    namespace = request.principal.namespace
    await authorize(request, request.scope["route_handler"])
    if request.principal.namespace != namespace:
        raise Problem(403, "forbidden", f"you have no role in namespace {namespace!r} any more")


async def _identify(connection: AnyConnection, context: ServerContext) -> tuple[Identity, bool]:
    given = connection.headers.get("authorization")
    if given is not None:
        scheme, _, token = given.partition(" ")
        if scheme.lower() == "bearer" and (
            identity := await context.tokens.identify(token.strip())
        ):
            return identity, False
        raise Problem(401, "unauthorized", "Invalid, expired or revoked token.")
    if (visitor := connection.scope.get(VISITOR)) is not None:
        return visitor.identity, True  # type: ignore[attr-defined]
    if secret := session_secret(connection):
        if identity := await context.sessions.identify(secret):
            return identity, True
        raise Problem(401, "unauthorized", "The session has ended. Log in again.")
    raise Problem(
        401, "unauthorized",
        "send a token, `Authorization: Bearer rota_...`: `rota tokens create` creates one",
    )  # fmt: skip


async def _csrf_field(connection: AnyConnection) -> str:
    check_origin(connection)  # before the body is read
    if not isinstance(connection, RotaRequest):
        return ""
    return (await connection.fields()).get(CSRF_FIELD, [""])[0]


def check_csrf(connection: AnyConnection, by_form: str | None = None) -> None:
    check_origin(connection)
    given = connection.headers.get(CSRF_HEADER, "") if by_form is None else by_form
    expected = csrf_token(session_secret(connection) or "")
    if not hmac.compare_digest(given.encode(), expected.encode()):
        raise Problem(
            403, "csrf",
            "a change with a session's cookie needs the header X-Rota-CSRF: see GET /v1/session",
        )  # fmt: skip


def check_origin(connection: AnyConnection) -> None:
    """Refuse a request that the browser says comes from another site."""
    if connection.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Problem(403, "csrf", "the request came from another site")
    origin = connection.headers.get("origin")
    if origin is None:
        return
    public = context_of(connection.app).settings.public_url
    ours = urlsplit(public).netloc if public else connection.headers.get("host", "")
    try:
        theirs = urlsplit(origin).netloc
    except ValueError:  # http://[bad
        theirs = None
    if theirs != ours:
        raise Problem(403, "csrf", "the request came from another site")


def _choose(connection: AnyConnection, context: ServerContext, identity: Identity) -> Principal:
    """Return the sender in the namespace that the request names, or in their own."""
    asked = connection.headers.get(NAMESPACE_HEADER) or connection.query_params.get("namespace")
    if isinstance(asked, list):
        raise Problem(
            400, "invalid", "name one namespace", fields={"namespace": "Must be a single value."}
        )
    namespace = asked or identity.home(context.settings.namespace)
    if namespace is not None and not NAME.fullmatch(namespace):
        raise Problem(
            400,
            "invalid",
            "invalid name of a namespace",
            fields={"namespace": "is not a valid name"},
        )
    principal = identity.within(namespace) if namespace is not None else None
    if principal is None:
        # The same answer whether it exists or not.
        raise Problem(403, "forbidden", "you have no role in this namespace")
    return principal


def check_policy(connection: AnyConnection, principal: Principal, policy: Policy) -> None:
    permission = permission_of(policy, method_of(connection), connection.scope["path"])
    if not principal.holds(permission, everywhere=policy.everywhere):
        where = "all namespaces" if policy.everywhere else f"namespace {principal.namespace!r}"
        raise Problem(
            403, "forbidden",
            f"this needs the role {policy.role} in {where}, or another with {permission}; "
            f"yours is {principal.role}",
        )  # fmt: skip
    scope = scope_of(method_of(connection), connection.scope["path"])
    if not principal.has_scope(scope):
        raise Problem(
            403,
            "scope",
            f"this token has no scope {scope}; its scopes are: {', '.join(principal.scopes)}",
        )
