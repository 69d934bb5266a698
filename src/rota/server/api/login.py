"""Logging in: the page, by one-time link, by password, by OpenID Connect.

The link's secret comes in the fragment of the address, which browsers don't send: a script of ours posts
it. So looking at the page uses nothing up, and the secret is in nobody's log.
"""

from __future__ import annotations

from html import escape
from typing import Annotated

import msgspec
from litestar import Response, get, post
from litestar.datastructures import Cookie
from litestar.params import FromQuery, JSONBody, QueryParameter
from litestar.response import Redirect

from rota.server.authorization import check_origin, cookie_name, is_secure, session_secret
from rota.server.context import ServerContext
from rota.server.given import GivenContext
from rota.server.identity.sessions import csrf_token
from rota.server.policy import PUBLIC
from rota.server.problems import Problem
from rota.server.requests import RotaRequest

_STATE_COOKIE = "rota_oidc"

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="/login.css"><script src="/login.js" defer></script></head>
<body><main><h1>Rota</h1>{body}<p id="told" role="alert"></p></main></body></html>
"""
_FORM = """<form id="password"><label>Name <input name="name" autocomplete="username" required></label>
<label>Password <input name="password" type="password" autocomplete="current-password" required></label>
<button>Log in</button></form>{provider}
<p class="hint">Or run <code>rota login</code> where Rota runs, and open the link it prints.</p>"""
_PROVIDER = '<p><a class="button" href="/login/oidc">Log in with your organisation</a></p>'
_INSIDE = """<p>You are logged in as <b>{name}</b>.</p>
<p><a href="/v1/openapi.json">What can be asked here</a></p>
<form id="logout" data-csrf="{csrf}"><button>Log out</button></form>"""

_SCRIPT = """"use strict";
const told = (text) => { document.getElementById("told").textContent = text; };
async function send(path, body, headers) {
  const answer = await fetch(path, {method: "POST", credentials: "same-origin",
    headers: {"Content-Type": "application/json", ...headers}, body: JSON.stringify(body)});
  if (answer.ok) { location.replace(path === "/logout" ? "/login" : "/"); return; }
  const problem = await answer.json().catch(() => ({}));
  told(problem.detail || "That didn't work.");
}
const link = location.hash.slice(1);
if (link && location.pathname === "/login") {
  history.replaceState(null, "", "/login");
  send("/login/link", {link});
}
document.getElementById("password")?.addEventListener("submit", (event) => {
  event.preventDefault();
  const form = new FormData(event.target);
  send("/login/password", {name: form.get("name"), password: form.get("password")});
});
document.getElementById("logout")?.addEventListener("submit", (event) => {
  event.preventDefault();
  send("/logout", {}, {"X-Rota-CSRF": event.target.dataset.csrf});
});
"""
_STYLE = """:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { display: grid; place-items: center; min-height: 100vh; margin: 0; }
main { width: min(22rem, 90vw); } label { display: block; margin: 0 0 1rem; }
input, button { font: inherit; width: 100%; box-sizing: border-box; padding: .5rem; }
.hint { opacity: .7; font-size: .9em; } #told { color: #c33; }
"""


class LinkRequest(msgspec.Struct, forbid_unknown_fields=True):
    link: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]


class PasswordRequest(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    password: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]


class LoggedIn(msgspec.Struct):
    """The session is in the cookie; `csrf` goes with every change it makes."""

    name: str
    csrf: str


def _html(body: str, title: str = "Rota") -> Response[str]:
    return Response(_PAGE.format(title=title, body=body), media_type="text/html")


@get("/login", policy=PUBLIC, include_in_schema=False)
async def login_page(context: GivenContext) -> Response[str]:
    return _html(_FORM.format(provider=_PROVIDER if context.oidc else ""), "Log in to Rota")


@get("/login.js", policy=PUBLIC, include_in_schema=False)
async def login_script() -> Response[str]:
    return Response(_SCRIPT, media_type="text/javascript")


@get("/login.css", policy=PUBLIC, include_in_schema=False)
async def login_style() -> Response[str]:
    return Response(_STYLE, media_type="text/css")


@get("/", policy=PUBLIC, include_in_schema=False)
async def front_page(request: RotaRequest, context: GivenContext) -> Response[str] | Redirect:
    secret = session_secret(request)
    identity = await context.sessions.identify(secret) if secret else None
    if secret is None or identity is None:
        return Redirect("/login")
    return _html(_INSIDE.format(name=escape(identity.name), csrf=csrf_token(secret)))


@post("/login/link", policy=PUBLIC, summary="Log in by one-time link", status_code=200)
async def login_by_link(
    request: RotaRequest, context: GivenContext, data: JSONBody[LinkRequest]
) -> Response[LoggedIn]:
    """Once: a second use is refused."""
    check_origin(request)
    secret = await context.sessions.begin_by_link(data.link)
    if secret is None:
        raise Problem(
            401, "unauthorized",
            "this link was used, or is over: `rota login` makes another",
        )  # fmt: skip
    return await _let_in(request, context, secret, "link")


@post("/login/password", policy=PUBLIC, summary="Log in by password", status_code=200)
async def login_by_password(
    request: RotaRequest, context: GivenContext, data: JSONBody[PasswordRequest]
) -> Response[LoggedIn]:
    """Slow on purpose, and slower after failures (429)."""
    check_origin(request)
    address = request.client.host if request.client else ""
    person = await context.passwords.check(data.name, data.password, address)
    return await _let_in(request, context, await context.sessions.begin(person), "password")


async def _let_in(
    request: RotaRequest, context: ServerContext, secret: str, how: str
) -> Response[LoggedIn]:
    identity = await context.sessions.identify(secret)
    if identity is None:
        raise Problem(401, "unauthorized", "the session is over: log in again")
    request.audit("login", f"session {identity.id}", actor=identity.name, via=how)
    answer = Response(LoggedIn(identity.name, csrf_token(secret)))
    answer.set_cookie(_session_cookie(request, context, secret))
    return answer


def _session_cookie(request: RotaRequest, context: ServerContext, secret: str) -> Cookie:
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
async def begin_oidc(request: RotaRequest, context: GivenContext) -> Redirect:
    if context.oidc is None:
        raise Problem(404, "not-found", "no log-in provider is configured")
    address, state = await context.oidc.begin(_callback(request, context), "/")
    # Lax: it has to come along when the provider sends the browser back.
    state_cookie = Cookie(
        key=_STATE_COOKIE, value=state, path="/login/oidc", httponly=True,
        secure=is_secure(request), samesite="lax", max_age=600,
    )  # fmt: skip
    return Redirect(address, cookies=[state_cookie])


@get("/login/oidc/callback", policy=PUBLIC, include_in_schema=False)
async def finish_oidc(
    request: RotaRequest, context: GivenContext, code: FromQuery[str | None] = None,
    state_: Annotated[str | None, QueryParameter(name="state")] = None,
) -> Redirect:  # fmt: skip
    if context.oidc is None:
        raise Problem(404, "not-found", "no log-in provider is configured")
    if code is None or state_ is None:
        raise Problem(403, "forbidden", "the provider didn't let you in")
    person, target = await context.oidc.finish(
        callback=_callback(request, context), code=code, state=state_,
        cookie=request.cookies.get(_STATE_COOKIE),
    )  # fmt: skip
    secret = await context.sessions.begin(person)
    identity = await context.sessions.identify(secret)
    name, id = (identity.name, identity.id) if identity else ("somebody", "")
    request.audit("login", f"session {id}", actor=name, via="oidc")
    return Redirect(target, cookies=[_session_cookie(request, context, secret)])


ROUTES = (login_page, login_script, login_style, front_page, login_by_link, login_by_password,
          begin_oidc, finish_oidc)  # fmt: skip
