"""The gate before every route: who asks, about which namespace, and whether its policy lets them.

Runs after routing and before anything of the body is read. A bearer token goes before a cookie. With a
cookie, a change must come from our own pages: it carries the session's CSRF token, and what the browser
says of its origin must be us. A form of a page carries the token as a field, which is looked for last,
when all else is in order.
"""

from __future__ import annotations

import hmac
from typing import Any
from urllib.parse import urlsplit

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.types import ASGIApp, Receive, Scope, Send

from rota.config import NAME
from rota.core.access import Identity, Policy, Principal
from rota.server.context import ServerContext, context_of
from rota.server.identity.sessions import csrf_token
from rota.server.policy import SAFE_METHODS, policy_of, scope_of
from rota.server.problems import Problem
from rota.server.requests import RotaRequest
from rota.server.strict import check_query, needed_body
from rota.store.changes import acting_as

CSRF_HEADER = "x-rota-csrf"
CSRF_FIELD = "csrf"
NAMESPACE_HEADER = "x-rota-namespace"

AnyConnection = ASGIConnection[Any, Any, Any, Any]


def cookie_name(secure: bool) -> str:
    """`__Host-`: the browser takes it only over TLS, for this host alone and for all its paths."""
    return "__Host-rota_session" if secure else "rota_session"


def is_secure(connection: AnyConnection) -> bool:
    """Whether people reach us over TLS."""
    public = context_of(connection.app).settings.public_url
    scheme = urlsplit(public).scheme if public else connection.scope.get("scheme", "http")
    return scheme == "https"


def session_secret(connection: AnyConnection) -> str | None:
    return connection.cookies.get(cookie_name(is_secure(connection)))


def method_of(connection: AnyConnection) -> str:
    return str(connection.scope.get("method", ""))


def gate(app: ASGIApp) -> ASGIApp:
    """The innermost middleware. Not as a guard: for each of those the framework copies the handler."""

    async def gated(scope: Scope, receive: Receive, send: Send) -> None:
        request = RotaRequest(scope, receive, send)
        handler = scope["route_handler"]
        await authorize(request, handler)
        if request.query_params:
            check_query(handler, request.query_params)
        if (needed := needed_body(handler)) is not None and not await request.body():
            told, fields = needed
            raise Problem(400, "invalid", told, fields=fields)
        with acting_as(request.actor()) as acting:
            scope["state"]["acting"] = acting
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
        state["trusted_body"] = True  # of somebody we know, though not yet of a page of ours
        check_csrf(connection, await _csrf_field(connection))
    state["principal"] = principal
    connection.scope["user"] = principal


async def authorize_again(request: RotaRequest) -> None:
    """For an answer that takes its time: refuse who may no longer ask for it."""
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
        raise Problem(
            401, "unauthorized",
            "Invalid, expired or revoked token.",
        )  # fmt: skip
    if secret := session_secret(connection):
        if identity := await context.sessions.identify(secret):
            return identity, True
        raise Problem(401, "unauthorized", "The session has ended. Log in again.")
    raise Problem(
        401, "unauthorized",
        "send a token, `Authorization: Bearer rota_...`: `rota tokens create` makes one",
    )  # fmt: skip


async def _csrf_field(connection: AnyConnection) -> str:
    check_origin(connection)  # before anything of the body is read
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
            "a change with a session's cookie needs the session's X-Rota-CSRF: GET /v1/session",
        )  # fmt: skip


def check_origin(connection: AnyConnection) -> None:
    """What the browser says of where this comes from must be us."""
    if connection.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Problem(403, "csrf", "this came from another site")
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
        raise Problem(403, "csrf", "this came from another site")


def _choose(connection: AnyConnection, context: ServerContext, identity: Identity) -> Principal:
    """Who they are in the namespace they name; in their own, when they name none."""
    asked = connection.headers.get(NAMESPACE_HEADER) or connection.query_params.get("namespace")
    if isinstance(asked, list):
        raise Problem(
            400, "invalid", "name one namespace", fields={"namespace": "Must be a single value."}
        )
    namespace = asked or identity.home(context.settings.namespace)
    if namespace is not None and not NAME.fullmatch(namespace):
        raise Problem(
            400, "invalid", "that is not a namespace's name", fields={"namespace": "not a name"}
        )
    principal = identity.within(namespace) if namespace is not None else None
    if principal is None:
        # The same for one that exists and one that doesn't.
        raise Problem(403, "forbidden", "you have no role in this namespace")
    return principal


def check_policy(connection: AnyConnection, principal: Principal, policy: Policy) -> None:
    if not principal.may(policy):
        needed = policy.role.label if policy.role else ""
        where = "all namespaces" if policy.everywhere else f"namespace {principal.namespace!r}"
        raise Problem(
            403, "forbidden",
            f"this needs the role {needed} in {where}; yours is {principal.role.label}",
        )  # fmt: skip
    scope = scope_of(method_of(connection), connection.scope["path"])
    if not principal.has_scope(scope):
        raise Problem(403, "scope", f"this token isn't for {scope}: {', '.join(principal.scopes)}")
