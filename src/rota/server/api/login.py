"""Logging in: by one-time link, by password, by OpenID Connect. The page is the dashboard's.

The link's secret comes in the fragment of the address, which browsers don't send: a script of ours posts
it. So looking at the page uses nothing up, and the secret is in nobody's log.
"""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
from litestar import Response, get, post
from litestar.datastructures import Cookie
from litestar.params import FromQuery, JSONBody, QueryParameter
from litestar.response import Redirect

from rota.core.access import Identity
from rota.server.authorization import check_origin, cookie_name, is_secure
from rota.server.context import ServerContext
from rota.server.dependencies import ContextDep
from rota.server.identity.sessions import csrf_token
from rota.server.policy import PUBLIC
from rota.server.problems import Problem
from rota.server.requests import RotaRequest
from rota.store.changes import Change

_STATE_COOKIE = "rota_oidc"
# Not //elsewhere, nor a backslash, which browsers take for the same.
_OURS = re.compile(r"/(?:(?!/)[!-\[\]-~]{1,2000})?")


class LinkRequest(msgspec.Struct, forbid_unknown_fields=True):
    link: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]


class PasswordRequest(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    password: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]


class LoggedIn(msgspec.Struct):
    """The session is in the cookie; `csrf` goes with every change it makes."""

    name: str
    csrf: str


@post("/login/link", policy=PUBLIC, summary="Log in by one-time link", status_code=200)
async def login_by_link(
    request: RotaRequest, context: ContextDep, data: JSONBody[LinkRequest]
) -> Response[LoggedIn]:
    """Once: a second use is refused."""
    check_origin(request)
    async with request.changing("login", "session") as change:
        secret = await context.sessions.begin_by_link(data.link)
        if secret is None:
            raise Problem(
                401, "unauthorized",
                "This login link was used or has expired. `rota login` prints another.",
            )  # fmt: skip
        return await let_in(request, change, secret, "link")


@post("/login/password", policy=PUBLIC, summary="Log in by password", status_code=200)
async def login_by_password(
    request: RotaRequest, context: ContextDep, data: JSONBody[PasswordRequest]
) -> Response[LoggedIn]:
    """Slow on purpose, and slower after failures (429)."""
    check_origin(request)
    address = request.client.host if request.client else ""
    user = await context.passwords.check(data.name, data.password, address)
    async with request.changing("login", "session") as change:
        secret = await context.sessions.begin(user)
        return await let_in(request, change, secret, "password")


async def let_in(request: RotaRequest, change: Change, secret: str, how: str) -> Response[LoggedIn]:
    """Answer with a session that was just begun, recorded as its owner's log-in."""
    identity = await who_logged_in(request, change, secret, how)
    answer = Response(LoggedIn(identity.name, csrf_token(secret)))
    answer.set_cookie(session_cookie(request, request.context, secret))
    return answer


async def who_logged_in(request: RotaRequest, change: Change, secret: str, how: str) -> Identity:
    identity = await request.context.sessions.identify(secret)
    if identity is None:
        raise Problem(401, "unauthorized", "The session has ended. Log in again.")
    change.subject = f"session {identity.id}"
    change.actor = request.actor(identity.name, how)
    return identity


def safe_target(path: str | None) -> str:
    """Where to go after the log-in: a path of ours, whatever the address says."""
    if path and _OURS.fullmatch(path):
        return path
    return "/"


def session_cookie(request: RotaRequest, context: ServerContext, secret: str) -> Cookie:
    secure = is_secure(request)
    return Cookie(
        key=cookie_name(secure), value=secret, path="/", httponly=True, secure=secure,
        samesite="lax", max_age=int(context.sessions.seconds),
    )  # fmt: skip


# -- OpenID Connect


def _callback(request: RotaRequest, context: ServerContext) -> str:
    base = context.settings.public_url or str(request.base_url)
    return f"{base.rstrip('/')}/login/oidc/callback"


@get("/login/oidc", policy=PUBLIC, include_in_schema=False)
async def begin_oidc(
    request: RotaRequest, context: ContextDep,
    next_: Annotated[str | None, QueryParameter(name="next")] = None,
) -> Redirect:  # fmt: skip
    if context.oidc is None:
        raise Problem(404, "not-found", "No login provider is configured.")
    address, state = await context.oidc.begin(_callback(request, context), safe_target(next_))
    # Lax: it has to come along when the provider sends the browser back.
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
    if context.oidc is None:
        raise Problem(404, "not-found", "No login provider is configured.")
    if code is None or state_ is None:
        raise Problem(403, "forbidden", "The provider refused the login.")
    user, target = await context.oidc.finish(
        callback=_callback(request, context), code=code, state=state_,
        cookie=request.cookies.get(_STATE_COOKIE),
    )  # fmt: skip
    async with request.changing("login", "session") as change:
        secret = await context.sessions.begin(user)
        await who_logged_in(request, change, secret, "oidc")
    return Redirect(target, cookies=[session_cookie(request, context, secret)])


ROUTES = (login_by_link, login_by_password, begin_oidc, finish_oidc)
