"""`rota sessions`: the sessions of browsers that are logged in."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

from rota.cli.options import Yes, argument, option
from rota.cli.output import count
from rota.cli.session import Session, callback, command
from rota.errors import ConfigError

group = typer.Typer(help="List and end dashboard sessions.")


@callback(group)
@command(group, "list")
def list_sessions(session: Session) -> None:
    """List the sessions of logged-in browsers, newest first."""
    found = session.run(session.installation.sessions.list(None))
    session.screen.listing(
        found, "No user is logged in. Print a login link: rota login",
        ("session", "user", "roles", "since", "until"),
        (
            (
                str(one.id), "(login link)" if one.by_link else one.name,
                ", ".join(f"{role} of {name}" for name, role in one.memberships.items()),
                f"{one.created_at:%Y-%m-%d %H:%M}", f"{one.expires_at:%Y-%m-%d %H:%M}",
            )
            for one in found
        ),
        whole=["session"],
    )  # fmt: skip


@command(group, "end")
def end(
    session: Session,
    ids: Annotated[
        list[UUID] | None, argument("SESSION", "Ids, as `rota sessions` lists them.")
    ] = None,
    links: Annotated[bool, option("End all sessions that were begun with a login link.")] = False,
    yes: Yes = False,
) -> None:
    """End sessions: every server refuses their cookies within five seconds."""
    if bool(ids) == links:
        raise ConfigError("name the sessions to end, or give --links")
    which = count(len(ids), "session") if ids else "all sessions that were begun with a login link"
    session.confirm(f"End {which}?", yes)
    sessions = session.installation.sessions
    ended = session.run(sessions.end(ids) if ids else sessions.end_links())
    session.screen.answer({"ended": ended}, f"ended {count(len(ended), 'session')}")
