"""The page of API tokens, and the redirect to the settings."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar.params import FromPath, QueryParameter
from litestar.response import Redirect

from rota.core.access import Role
from rota.operations.access import CreatedToken
from rota.server.api.tokens import TokenRequest, read_page
from rota.server.dashboard.commands import Copyable, cli, curl
from rota.server.dashboard.forms import Fields, Wrong, convert, telling_why
from rota.server.dashboard.pages import Back, Here, Html, action, back, page, show
from rota.server.dependencies import ContextDep, PrincipalDep
from rota.server.policy import ADMIN, VIEWER
from rota.server.requests import RotaRequest

_ROWS = 50
Text = Annotated[str | None, QueryParameter(max_length=500)]


@page("/settings", policy=VIEWER)
async def settings(request: RotaRequest) -> Redirect:
    here = Here(request)
    return Redirect(here.url(here.settings[0][0]), status_code=303)


@page("/tokens", policy=ADMIN)
async def list_tokens(
    request: RotaRequest, context: ContextDep, principal: PrincipalDep, cursor: Text = None
) -> Html:
    return await _shown(request, context, principal, cursor=cursor or None)


async def _shown(
    request: RotaRequest, context: ContextDep, principal: PrincipalDep, *,
    cursor: str | None = None, made: CreatedToken | None = None, problem: str | None = None,
) -> Html:  # fmt: skip
    cut = await read_page(context, principal.namespace, _ROWS, cursor)
    here = Here(request)
    return await show(
        request, "tokens.html", tokens=cut.items, made=made, problem=problem,
        next=here.url("/tokens", cursor=cut.next) if cut.next else None,
        roles=[role.label for role in Role], status=200 if problem is None else 422,
        how=Copyable(
            cli=cli("tokens", "create", "NAME", "--role", "operator"),
            curl=curl("POST", "/v1/tokens", {"name": "NAME", "role": "operator"}),
        ),
    )  # fmt: skip


@action("/tokens", policy=ADMIN)
async def make_token(request: RotaRequest, context: ContextDep, principal: PrincipalDep) -> Html:
    """Create a token. The answer is the only page that ever shows it."""
    fields = await Fields.of(request)
    try:
        with telling_why():
            said = convert(
                {"name": fields.text("name"), "role": fields.text("role"),
                 "scopes": fields.words("scopes"), "expires_at": fields.moment("expires_at"),
                 "everywhere": fields.flag("everywhere")},
                TokenRequest,
            )  # fmt: skip
            made = await context.installation.tokens.create(
                **msgspec.structs.asdict(said), namespace=principal.namespace, by=principal
            )
    except Wrong as wrong:
        return await _shown(request, context, principal, problem=str(wrong))
    return await _shown(request, context, principal, made=made)


@action("/tokens/{prefix:str}/revoke", policy=ADMIN)
async def revoke_token(
    request: RotaRequest, context: ContextDep, principal: PrincipalDep, prefix: FromPath[str]
) -> Back:
    await context.installation.tokens.revoke(prefix, by=principal)
    return back(
        request, "/tokens", f"Token {prefix} revoked. Every server refuses it within five seconds."
    )


ROUTES = [settings, list_tokens, make_token, revoke_token]
