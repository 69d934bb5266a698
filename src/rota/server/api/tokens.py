"""API tokens: made, listed and revoked by the admins of their namespace."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

import msgspec
from litestar import Response, delete, get, post
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from rota.errors import ConfigError, NotFound
from rota.server.api.pages import Cursor, Limit, Page, make_page, read_cursor
from rota.server.dependencies import ContextDep, PrincipalDep
from rota.server.identity.principal import ANYWHERE, Principal
from rota.server.identity.tokens import check_scopes, create_token
from rota.server.policy import ADMIN
from rota.server.problems import Problem
from rota.server.requests import RotaRequest
from rota.store.identity import TokenInfo

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class TokenRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What the new token is to be."""

    name: Text
    role: Annotated[str, msgspec.Meta(pattern="^(viewer|operator|admin|worker)$")]
    scopes: Annotated[list[str], msgspec.Meta(max_length=50)] = []
    tasks: Annotated[
        list[str], msgspec.Meta(max_length=100, description="Only to submit jobs of these.")
    ] = []
    expires_at: datetime | None = None
    everywhere: bool = False  # in all namespaces, not only in that of the request


class NewTokenAnswer(msgspec.Struct):
    """`token` is shown this once."""

    token: str
    info: TokenInfo


@get("/v1/tokens", policy=ADMIN, summary="The tokens of the namespace")
async def list_tokens(
    context: ContextDep, principal: PrincipalDep, limit: Limit = 50, cursor: Cursor = None,
    revoked: FromQuery[bool] = False,
) -> Page[TokenInfo]:  # fmt: skip
    """The newest first, without their secrets, which are not kept."""
    found = await context.identity.list_tokens(
        principal.namespace, revoked=revoked, limit=limit + 1,
        before=read_cursor(cursor, tuple[datetime, UUID]),
    )  # fmt: skip
    return make_page(found, limit, lambda token: (token.created_at, token.id))


@post("/v1/tokens", policy=ADMIN, summary="Make a token")
async def add_token(
    request: RotaRequest, context: ContextDep, principal: PrincipalDep,
    data: JSONBody[TokenRequest],
) -> NewTokenAnswer:  # fmt: skip
    """It can do no more than who makes it, and ends no later than the token that makes it."""
    namespace = ANYWHERE if data.everywhere else principal.namespace
    scopes = check_scopes(data.scopes)
    _check_reach(principal, data.everywhere, scopes)
    if data.expires_at is not None and data.expires_at.tzinfo is None:
        raise ConfigError("expires_at needs a UTC offset, 2026-12-31T23:59:59Z")
    by_token = principal.identity.prefix is not None
    ends = _end(principal, data.expires_at)
    async with request.changing("create", "token") as change:
        token, info = await create_token(
            context.identity, name=data.name, namespace=namespace, role=data.role, scopes=scopes,
            tasks=data.tasks, created_by=principal.name, expires_at=ends,
            made_with=principal.identity.id if by_token else None,
        )  # fmt: skip
        change.subject, change.after = f"token {info.prefix}", info
    return NewTokenAnswer(token, info)


def _check_reach(principal: Principal, everywhere: bool, scopes: list[str]) -> None:
    if everywhere and not principal.everywhere:
        raise Problem(403, "forbidden", "only who is admin everywhere can make such a token")
    beyond = [scope for scope in scopes if not principal.has_scope(scope)]
    if beyond or (principal.scopes and not scopes):
        raise Problem(
            403, "scope", "a token with scopes can only make tokens with some of the same scopes"
        )


def _end(principal: Principal, asked: datetime | None) -> datetime | None:
    """A session is short by nature, and a person's: it limits nothing. A token's own end does."""
    identity = principal.identity
    last = identity.expires_at if identity.prefix is not None else None
    if last is None or (asked is not None and asked <= last):
        return asked
    if asked is None:
        return last
    raise Problem(
        403, "forbidden", "expires_at: a token can't make one that is good for longer than itself: "
        f"until {last.isoformat()} at most",
    )  # fmt: skip


@delete("/v1/tokens/{prefix:str}", policy=ADMIN, summary="Revoke a token", status_code=200)
async def revoke_token(
    request: RotaRequest, context: ContextDep, principal: PrincipalDep, prefix: FromPath[str],
    made: Annotated[
        bool, QueryParameter(description="Also the tokens that were made with it.")
    ] = False,
) -> Response[TokenInfo]:  # fmt: skip
    """Every server refuses it within five seconds."""
    spaces = [principal.namespace, *([ANYWHERE] if principal.everywhere else [])]
    found: list[TokenInfo] = []
    async with request.changing("revoke", f"token {prefix}") as change:
        for space in spaces:
            change.before = await context.identity.get_token(prefix, space)
            if found := await context.identity.revoke_token(prefix, space, made=made):
                break
        if not found:
            raise NotFound(f"there is no token {prefix!r} in namespace {principal.namespace!r}")
        change.after = found if made else found[0]
    context.tokens.memory.forget_all()
    return Response(found[0])


ROUTES = (list_tokens, add_token, revoke_token)
