"""REST routes of the users of the dashboard, of all sessions by link, and of namespaces' encryption.

They concern the whole installation: an admin of all namespaces may use them.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import delete, get, post, put
from litestar.params import FromPath, JSONBody
from msgspec import Meta

from rota.client.wire import EndedSessions, UserList
from rota.core.administration import AddedUser
from rota.server.api.access import RoleNames
from rota.server.policy import EVERYWHERE
from rota.server.requests import ContextDep, PrincipalDep

Text = Annotated[str, Meta(min_length=1, max_length=200)]


@get("/v1/users", policy=EVERYWHERE, summary="List the users who may log in")
async def list_users(context: ContextDep) -> UserList:
    """With their roles by namespace."""
    return UserList(await context.installation.users.list(None))


class UserRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A user's role in the namespace of the request, or, with `everywhere`, in all of them."""

    name: Text
    role: RoleNames = "viewer"
    everywhere: bool = False
    password: Annotated[str, Meta(min_length=1, max_length=1000)] | None = None


@post("/v1/users", policy=EVERYWHERE, summary="Add a user, or change one", status_code=200)
async def put_user(
    context: ContextDep, principal: PrincipalDep, data: JSONBody[UserRequest]
) -> AddedUser:
    """Add a user, or change the role or the password of one."""
    return await context.installation.users.add(
        **msgspec.structs.asdict(data), namespace=principal.namespace, by=principal
    )


@delete("/v1/users/{name:str}", policy=EVERYWHERE, summary="Remove a user", status_code=204)
async def remove_user(context: ContextDep, principal: PrincipalDep, name: FromPath[str]) -> None:
    """Their sessions end, within five seconds on every server."""
    await context.installation.users.remove(name, by=principal)


@post(
    "/v1/sessions:end-links", policy=EVERYWHERE, summary="End all sessions of login links",
    status_code=200,
)  # fmt: skip
async def end_links(context: ContextDep) -> EndedSessions:
    """Every server refuses their cookies within five seconds."""
    return EndedSessions(await context.installation.sessions.end_links())


class EncryptionRequest(msgspec.Struct, forbid_unknown_fields=True):
    encrypted: bool


@put(
    "/v1/namespaces/{name:str}/encryption", policy=EVERYWHERE, status_code=204,
    summary="Encrypt what is submitted to a namespace, or stop doing so",
)  # fmt: skip
async def set_encrypted(
    context: ContextDep, name: FromPath[str], data: JSONBody[EncryptionRequest]
) -> None:
    """The change takes effect within five seconds, for new jobs. The server needs the keys."""
    await context.installation.namespaces.set_encrypted(name, data.encrypted)


ROUTES = [list_users, put_user, remove_user, end_links, set_encrypted]
