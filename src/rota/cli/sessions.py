"""`rota sessions`: the sessions of browsers that are logged in."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

from rota.cli.options import Yes
from rota.cli.output import plain, table
from rota.cli.session import Session, callback, command
from rota.errors import ConfigError

group = typer.Typer(help="List and end dashboard sessions.")


@callback(group)
@command(group, "list")
def list_sessions(session: Session) -> None:
    """List the sessions of logged-in browsers, newest first."""
    found = session.run(session.installation.sessions.list(None))
    screen = session.screen
    if not screen.listing(found, "Nobody is logged in. Print a login link: rota login"):
        return
    rows = table("session", "user", "roles", "since", "until", whole=["session"])
    for one in found:
        roles = ", ".join(f"{role} of {name}" for name, role in one.memberships.items())
        user = "(login link)" if one.by_link else plain(one.name)
        rows.add_row(str(one.id), user, roles, f"{one.created_at:%Y-%m-%d %H:%M}",
                     f"{one.expires_at:%Y-%m-%d %H:%M}")  # fmt: skip
    screen.show(rows)


@command(group, "end")
def end(
    session: Session,
    ids: Annotated[
        list[UUID] | None, typer.Argument(metavar="SESSION", help="Ids, as `rota sessions` lists them.")
    ] = None,
    links: Annotated[
        bool, typer.Option("--links", help="End all sessions that were begun with a login link.")
    ] = False,
    yes: Yes = False,
) -> None:  # fmt: skip
    """End sessions: every server refuses their cookies within five seconds."""
    if bool(ids) == links:
        raise ConfigError("name the sessions to end, or give --links")
    count = len(ids or ())
    session.confirm(f"End {count} session{'' if count == 1 else 's'}?" if ids else
                    "End all sessions that were begun with a login link?", yes)  # fmt: skip
    sessions = session.installation.sessions
    ended = session.run(sessions.end(ids) if ids else sessions.end_links())
    session.screen.answer(
        {"ended": ended}, f"ended {len(ended)} session{'' if len(ended) == 1 else 's'}"
    )
