"""REST routes of API tokens, for the admins of their namespace."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

import msgspec
from litestar import Response, delete, get, post
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from rota.operations.access import CreatedToken
from rota.server.api.pages import Cursor, Limit, Page, make_page, read_cursor
from rota.server.context import ServerContext
from rota.server.dependencies import ContextDep, PrincipalDep
from rota.server.policy import ADMIN
from rota.store.identity import TokenInfo

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class TokenRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A token to create."""

    name: Text
    role: Annotated[str, msgspec.Meta(pattern="^(viewer|operator|admin|worker)$")]
    scopes: Annotated[list[str], msgspec.Meta(max_length=50)] = []
    tasks: Annotated[
        list[str], msgspec.Meta(max_length=100, description="The tasks whose jobs it may submit.")
    ] = []
    expires_at: datetime | None = None
    everywhere: bool = False  # in all namespaces, not only in that of the request


async def read_page(
    context: ServerContext, namespace: str, limit: int, cursor: str | None, *, revoked: bool = False
) -> Page[TokenInfo]:
    found = await context.installation.tokens.list(
        namespace, revoked=revoked, limit=limit + 1,
        before=read_cursor(cursor, tuple[datetime, UUID]),
    )  # fmt: skip
    return make_page(found, limit, lambda token: (token.created_at, token.id))


@get("/v1/tokens", policy=ADMIN, summary="List the tokens of the namespace")
async def list_tokens(
    context: ContextDep, principal: PrincipalDep, limit: Limit = 50, cursor: Cursor = None,
    revoked: FromQuery[bool] = False,
) -> Page[TokenInfo]:  # fmt: skip
    """Newest first, without their secrets, which are not stored."""
    return await read_page(context, principal.namespace, limit, cursor, revoked=revoked)


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


ROUTES = (list_tokens, add_token, revoke_token)
