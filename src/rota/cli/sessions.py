"""`rota sessions`: who is logged in to the dashboard."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

from rota.app import App
from rota.cli.access import change_of, identity_store
from rota.cli.output import plain, table
from rota.cli.session import Session, callback, command
from rota.errors import ConfigError, NotFound
from rota.store.identity import OpenSession

group = typer.Typer(help="List and end the sessions of browsers that are logged in.")


@callback(group)
@command(group, "list")
def list_sessions(session: Session) -> None:
    """List the sessions of browsers that are logged in, newest first."""
    found = session.run(_list(session.app))
    screen = session.screen
    if screen.as_json:
        screen.json(found)
        return
    if not found:
        screen.note("Nobody is logged in: `rota login` prints a link.")
        return
    rows = table("session", "who", "roles", "since", "until", whole=["session"])
    for one in found:
        roles = ", ".join(f"{role} of {name}" for name, role in one.memberships.items())
        who = "(by link)" if one.by_link else plain(one.name)
        rows.add_row(str(one.id), who, roles, f"{one.created_at:%Y-%m-%d %H:%M}",
                     f"{one.expires_at:%Y-%m-%d %H:%M}")  # fmt: skip
    screen.show(rows)


async def _list(app: App) -> list[OpenSession]:
    return await (await identity_store(app)).list_sessions(None)


@command(group, "end")
def end(
    session: Session,
    ids: Annotated[
        list[UUID] | None, typer.Argument(metavar="SESSION", help="As `rota sessions` lists them.")
    ] = None,
    links: Annotated[
        bool, typer.Option("--links", help="All sessions that were begun by a link.")
    ] = False,
) -> None:
    """End sessions: their cookies are refused within five seconds by every server."""
    if bool(ids) == links:
        raise ConfigError("name the sessions to end, or give --links")
    ended = session.run(_end(session.app, ids or []))
    if session.screen.as_json:
        session.screen.json({"ended": ended})
    else:
        session.screen.say(f"ended {len(ended)} session{'' if len(ended) == 1 else 's'}")


async def _end(app: App, ids: list[UUID]) -> list[UUID]:
    store = await identity_store(app)
    chosen = ids or [one.id for one in await store.list_sessions(None) if one.by_link]
    async with change_of(app, "end", "sessions") as change:
        ended = await store.end_sessions(chosen, None)
        if ids and len(ended) < len(set(ids)):
            missing = next(id for id in ids if id not in ended)
            raise NotFound(f"there is no session {missing}; `rota sessions` lists them")
        change.after = {"ended": ended}
        if not ended:
            change.void()
    return ended
