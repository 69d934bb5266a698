"""Sessions: who is logged in, by a person's name or by a one-time link, and ending that."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from litestar import delete, get
from litestar.params import FromPath

from rota.errors import NotFound
from rota.server.api.pages import Cursor, Limit, Page, make_page, read_cursor
from rota.server.dependencies import ContextDep, PrincipalDep
from rota.server.policy import ADMIN
from rota.server.requests import RotaRequest
from rota.store.identity import OpenSession


@get("/v1/sessions", policy=ADMIN, summary="Who is logged in")
async def list_sessions(
    context: ContextDep, principal: PrincipalDep, limit: Limit = 50, cursor: Cursor = None
) -> Page[OpenSession]:
    """The newest first: sessions of people with a role in the namespace, and of links to it."""
    found = await context.identity.list_sessions(
        None if principal.everywhere else principal.namespace, limit=limit + 1,
        before=read_cursor(cursor, tuple[datetime, UUID]),
    )  # fmt: skip
    return make_page(found, limit, lambda session: (session.created_at, session.id))


@delete("/v1/sessions/{session_id:uuid}", policy=ADMIN, summary="End a session", status_code=204)
async def end_session(
    request: RotaRequest, context: ContextDep, principal: PrincipalDep,
    session_id: FromPath[UUID],
) -> None:  # fmt: skip
    """At once here, within five seconds on every server. The session of somebody who also has a role in
    other namespaces can be ended only by who is admin everywhere."""
    reach = None if principal.everywhere else principal.namespace
    async with request.changing("end", f"session {session_id}"):
        if not await context.identity.end_sessions([session_id], reach):
            raise NotFound(f"there is no session {session_id} that you can end")
    context.sessions.memory.forget_all()


ROUTES = [list_sessions, end_session]
