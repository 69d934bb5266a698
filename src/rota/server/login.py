"""Log in, by one-time link, by password or with OpenID Connect, and log out.

The secret of a link is in the fragment of the URL, which browsers don't send: a script of the login page
posts it. So opening the page does not use the link, and the secret is in no log. The form for the
password works without a script.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import Response, get, post
from litestar.datastructures import Cookie
from litestar.params import FromQuery, JSONBody, QueryParameter
from litestar.response import Redirect

from rota.client.wire import Me
from rota.core.roles import label_of
from rota.operations.access import BegunSession
from rota.server.authorization import (
    CSRF_FIELD,
    check_csrf,
    check_origin,
    cookie_name,
    is_secure,
    session_secret,
)
from rota.server.context import ServerContext
from rota.server.dashboard.pages import Html, show_bare
from rota.server.identity.credentials import csrf_token
from rota.server.identity.oidc import OpenIDConnect
from rota.server.policy import PUBLIC, VIEWER
from rota.server.problems import Problem
from rota.server.requests import ContextDep, PrincipalDep, RotaRequest
from rota.server.targets import safe_target

_STATE_COOKIE = "rota_oidc"

Next = Annotated[str | None, QueryParameter(name="next", max_length=3000)]


class LinkRequest(msgspec.Struct, forbid_unknown_fields=True):
    link: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]


class PasswordRequest(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    password: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]


class LoggedIn(msgspec.Struct):
    """The session is in the cookie; every change must carry `csrf` in X-Rota-CSRF."""

    name: str
    csrf: str


@post("/login/link", policy=PUBLIC, summary="Log in with a one-time link", status_code=200)
async def login_by_link(
    request: RotaRequest, context: ContextDep, data: JSONBody[LinkRequest]
) -> Response[LoggedIn]:
    """A link can be used once."""
    check_origin(request)
    begun = await context.installation.sessions.log_in("link", link=data.link)
    if begun is None:
        raise Problem(
            401, "unauthorized",
            "This login link was used or has expired. `rota login` prints another.",
        )  # fmt: skip
    return _logged_in(request, begun)


@post("/login/password", policy=PUBLIC, summary="Log in with a password", status_code=200)
async def login_by_password(
    request: RotaRequest, context: ContextDep, data: JSONBody[PasswordRequest]
) -> Response[LoggedIn]:
    """Slow on purpose, and slower after failures (429)."""
    return _logged_in(request, await _check_password(request, context, data.name, data.password))


def _logged_in(request: RotaRequest, begun: BegunSession) -> Response[LoggedIn]:
    return Response(
        LoggedIn(begun.name, csrf_token(begun.secret)), cookies=[_session_cookie(request, begun)]
    )


async def _check_password(
    request: RotaRequest, context: ServerContext, name: str, password: str
) -> BegunSession:
    check_origin(request)
    address = request.client.host if request.client else ""
    user = await context.passwords.check(name, password, address)
    return _begun(await context.installation.sessions.log_in("password", user=user))


def _begun(session: BegunSession | None) -> BegunSession:
    if session is None:
        raise Problem(401, "unauthorized", "The session has ended. Log in again.")
    return session


def _session_cookie(request: RotaRequest, begun: BegunSession) -> Cookie:
    secure = is_secure(request)
    return Cookie(
        key=cookie_name(secure), value=begun.secret, path="/", httponly=True, secure=secure,
        samesite="lax", max_age=begun.seconds,
    )  # fmt: skip


# -- OpenID Connect


def _provider(context: ServerContext) -> OpenIDConnect:
    if context.oidc is None:
        raise Problem(404, "not-found", "No login provider is configured.")
    return context.oidc


def _callback(request: RotaRequest, context: ServerContext) -> str:
    base = context.settings.public_url or str(request.base_url)
    return f"{base.rstrip('/')}/login/oidc/callback"


@get("/login/oidc", policy=PUBLIC, include_in_schema=False)
async def begin_oidc(request: RotaRequest, context: ContextDep, next_: Next = None) -> Redirect:
    address, state = await _provider(context).begin(_callback(request, context), safe_target(next_))
    # Lax: the browser must send it when the provider redirects back.
    state_cookie = Cookie(
        key=_STATE_COOKIE, value=state, path="/login/oidc", httponly=True,
        secure=is_secure(request), samesite="lax", max_age=600,
    )  # fmt: skip
    return Redirect(address, cookies=[state_cookie])


@get("/login/oidc/callback", policy=PUBLIC, include_in_schema=False)
async def finish_oidc(
    request: RotaRequest, context: ContextDep, code: FromQuery[str | None] = None,
    state_: Annotated[str | None, QueryParameter(name="state")] = None,
) -> Redirect:  # fmt: skip
    provider = _provider(context)
    if code is None or state_ is None:
        raise Problem(403, "forbidden", "The provider refused the login.")
    user, target = await provider.finish(
        callback=_callback(request, context), code=code, state=state_,
        cookie=request.cookies.get(_STATE_COOKIE),
    )  # fmt: skip
    begun = _begun(await context.installation.sessions.log_in("oidc", user=user))
    return Redirect(target, cookies=[_session_cookie(request, begun)])


# -- the page


@get("/login", policy=PUBLIC, include_in_schema=False)
async def login_page(request: RotaRequest, context: ContextDep, next_: Next = None) -> Html:
    secret = session_secret(request)
    known = await context.sessions.identify(secret) if secret else None
    return show_bare(
        "login.html", target=safe_target(next_), provider=context.oidc is not None, problem=None,
        name=known.name if known else None,
    )  # fmt: skip


@post("/login", policy=PUBLIC, include_in_schema=False, status_code=303)
async def login_by_form(
    request: RotaRequest, context: ContextDep, next_: Next = None
) -> Redirect | Html:
    """Log in with the password of the page's form."""
    check_origin(request)
    fields = await request.fields()
    name, password = (fields.get(field, [""])[0][:1000] for field in ("name", "password"))
    target = safe_target(next_)
    try:
        begun = await _check_password(request, context, name[:200], password)
    except Problem as problem:
        answer = show_bare(
            "login.html", problem.status, target=target, provider=context.oidc is not None,
            problem=problem.detail, name=None,
        )  # fmt: skip
        answer.headers.update(problem.headers)
        return answer
    return Redirect(target, status_code=303, cookies=[_session_cookie(request, begun)])


# -- the session


@get("/v1/session", policy=VIEWER, summary="Get your identity")
async def get_session(request: RotaRequest, context: ContextDep, principal: PrincipalDep) -> Me:
    """Return your name, roles and scopes, whether you use a token or a session."""
    identity = principal.identity
    secret = session_secret(request) if identity.kind == "session" else None
    return Me(
        name=identity.name, kind=identity.kind, namespace=principal.namespace,
        role=principal.role,
        namespaces={name: label_of(roles) for name, roles in sorted(identity.memberships.items())},
        scopes=list(principal.scopes), prefix=identity.prefix, expires_at=identity.expires_at,
        csrf=csrf_token(secret) if secret else None,
        now=await context.database.fetchval("now"),
    )  # fmt: skip


@post("/logout", policy=PUBLIC, summary="Log out", status_code=200)
async def logout(request: RotaRequest, context: ContextDep) -> Response[None]:
    """End the session of the cookie. Every server refuses it within five seconds. A form of a page is
    answered with a redirect to the login page."""
    secret = session_secret(request)
    fields = await request.fields()
    if secret is not None and (owner := await context.sessions.identify(secret)) is not None:
        check_csrf(request, fields.get(CSRF_FIELD, [None])[0])
        await context.installation.sessions.log_out(secret, owner)
    answer: Response[None] = Response(None)
    if fields:
        answer = Response(None, status_code=303, headers={"Location": "/login"})
    answer.delete_cookie(cookie_name(is_secure(request)), path="/")
    return answer


ROUTES = [
    login_by_link, login_by_password, begin_oidc, finish_oidc, login_page, login_by_form, get_session,
    logout,
]  # fmt: skip
