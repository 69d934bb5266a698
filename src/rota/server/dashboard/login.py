"""The page to log in, and the files that all pages need.

The form works without a script; a link's secret, which is in the fragment of the address, needs one.
"""

from __future__ import annotations

from typing import Annotated

from litestar import Response, get, post
from litestar.params import QueryParameter
from litestar.response import Redirect

from rota.server.api.login import safe_target, session_cookie, who_logged_in
from rota.server.authorization import check_origin, session_secret
from rota.server.dashboard.pages import ASSETS, Html, asset, show_bare
from rota.server.dependencies import ContextDep
from rota.server.policy import PUBLIC
from rota.server.problems import Problem
from rota.server.requests import RotaRequest

Next = Annotated[str | None, QueryParameter(name="next", max_length=3000)]


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
    """By password, from the page's form."""
    check_origin(request)
    fields = await request.fields()
    name, password = (fields.get(field, [""])[0][:1000] for field in ("name", "password"))
    address = request.client.host if request.client else ""
    target = safe_target(next_)
    try:
        user = await context.passwords.check(name[:200], password, address)
    except Problem as problem:
        answer = show_bare(
            "login.html", problem.status, target=target, provider=context.oidc is not None,
            problem=problem.detail, name=None,
        )  # fmt: skip
        answer.headers.update(problem.headers)
        return answer
    async with request.changing("login", "session") as change:
        secret = await context.sessions.begin(user)
        await who_logged_in(request, change, secret, "password")
    cookies = [session_cookie(request, context, secret)]
    return Redirect(target, status_code=303, cookies=cookies)


def _make_asset_route(path: str, media_type: str) -> object:
    @get(path, policy=PUBLIC, include_in_schema=False)
    async def give_asset(request: RotaRequest) -> Response[bytes]:
        # An address with a version in it never means anything else.
        kept = (
            "public, max-age=31536000, immutable" if request.scope["query_string"] else "no-cache"
        )
        return Response(asset(path), media_type=media_type, headers={"Cache-Control": kept})

    return give_asset


ROUTES = [
    login_page, login_by_form,
    *(_make_asset_route(path, media_type) for path, media_type in ASSETS.items()),
]  # fmt: skip
