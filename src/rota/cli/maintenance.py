"""`rota maintenance`: times in which people are not told of events."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from rota.cli.options import Yes, argument, moment, option
from rota.cli.session import Session, callback, command
from rota.cli.times import When, relative
from rota.model import MaintenanceWindow

Name = Annotated[str, argument("NAME", "Name of the window.")]

group = typer.Typer(help="List and set times in which people are not told of events.")


@callback(group)
@command(group, "list")
def list_windows(session: Session) -> None:
    """List maintenance windows: open, planned, and those that ended within a day."""
    windows = session.run(session.app.maintenance.list())
    session.screen.listing(
        windows, "No maintenance windows. Begin one: rota maintenance set NAME --for 2h",
        ("window", "state", "starts", "ends", "events", "by", "note"),
        (
            (window.name, _state(window, session.now), relative(window.starts_at, session.now),
             relative(window.ends_at, session.now), ", ".join(window.kinds) or "all",
             window.created_by, window.note)
            for window in windows
        ),
    )  # fmt: skip


def _state(window: MaintenanceWindow, now: datetime) -> str:
    if window.open:
        return "open"
    return "planned" if window.starts_at > now else "ended"


@command(group, "set")
def set_window(
    session: Session,
    name: Name,
    time: Annotated[str, option("How long: 30m, 4h, 2d.", "--for", metavar="DURATION")] = "1h",
    start: Annotated[When | None, moment("When it begins. (default: now)", "--at")] = None,
    kind: Annotated[
        list[str] | None, option("Kind of events that it covers. Repeatable. (default: all)")
    ] = None,
    note: Annotated[str, option("A note for others.", metavar="TEXT")] = "",
) -> None:
    """Set a maintenance window, from now or later: people are told of no events in it."""
    window = session.run(
        session.app.maintenance.put(
            name, start=session.at(start), time=time, kinds=kind or [], note=note
        )
    )
    session.screen.answer(window, f"{name}: until {window.ends_at:%Y-%m-%d %H:%M:%S %Z}")


@command(group, "delete")
def delete(session: Session, name: Name, yes: Yes = False) -> None:
    """Delete a maintenance window: end it now, or take back one that is planned."""
    session.confirm(f"Delete maintenance window {name}?", yes)
    window = session.run(session.app.maintenance.delete(name))
    session.screen.answer(window, f"deleted maintenance window {name}")
