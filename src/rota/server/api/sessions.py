"""REST routes of the sessions of logged-in browsers."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from litestar import delete, get
from litestar.params import FromPath

from rota.server.api.pages import Cursor, Limit, Page, make_page, read_cursor
from rota.server.dependencies import ContextDep, PrincipalDep
from rota.server.policy import ADMIN
from rota.store.identity import OpenSession


@get("/v1/sessions", policy=ADMIN, summary="List the sessions of logged-in browsers")
async def list_sessions(
    context: ContextDep, principal: PrincipalDep, limit: Limit = 50, cursor: Cursor = None
) -> Page[OpenSession]:
    """Newest first: sessions of users with a role in the namespace, and of login links to it."""
    found = await context.installation.sessions.list(
        principal.reach, limit=limit + 1, before=read_cursor(cursor, tuple[datetime, UUID])
    )
    return make_page(found, limit, lambda session: (session.created_at, session.id))


@delete("/v1/sessions/{session_id:uuid}", policy=ADMIN, summary="End a session", status_code=204)
async def end_session(
    context: ContextDep, principal: PrincipalDep, session_id: FromPath[UUID]
) -> None:
    """Every server refuses its cookie within five seconds. The session of a user who also has a role in
    other namespaces can only be ended by an admin of all namespaces."""
    await context.installation.sessions.end([session_id], by=principal)


ROUTES = [list_sessions, end_session]
