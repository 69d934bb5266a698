"""`rota alerts`: what needs attention; acknowledge and silence it."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.options import argument, option
from rota.cli.session import Session, callback, command
from rota.cli.times import relative
from rota.model import Alert

Key = Annotated[str, argument("KEY", "The alert's key, as `rota alerts` shows it.")]
Note = Annotated[str, option("A note for others.", metavar="TEXT")]

group = typer.Typer(help="List, acknowledge and silence alerts.")


@callback(group)
@command(group, "list")
def list_alerts(
    session: Session,
    active: Annotated[bool, option("Leave out what is acknowledged or silenced.")] = False,
) -> None:
    """List alerts, the problems first."""
    alerts = session.run(session.app.alerts.list(active=active))
    session.screen.listing(
        alerts, "No alerts.", ("severity", "alert", "text", "latest", "mark"),
        (
            (one.severity, one.key, one.text,
             "" if one.latest_at is None else relative(one.latest_at, session.now), _mark(one, session))
            for one in alerts
        ),
        whole=["alert"],
    )  # fmt: skip


def _mark(alert: Alert, session: Session) -> str:
    if alert.silenced_until is not None:
        until = relative(alert.silenced_until, session.now)
        return f"silenced until {until} by {alert.marked_by}"
    return "" if alert.active else f"acknowledged by {alert.marked_by}"


@command(group, "acknowledge")
def acknowledge(session: Session, key: Key, note: Note = "") -> None:
    """Acknowledge an alert: it is active again when it happens again."""
    alert = session.run(session.app.alerts.acknowledge(key, note=note))
    session.screen.answer(alert, f"acknowledged {key}")


@command(group, "silence")
def silence(
    session: Session,
    key: Key,
    time: Annotated[str, option("How long: 30m, 4h, 2d.", "--for", metavar="DURATION")] = "1h",
    note: Note = "",
) -> None:
    """Silence an alert for a time, whatever happens meanwhile."""
    alert = session.run(session.app.alerts.silence(key, time, note=note))
    session.screen.answer(alert, f"silenced {key} for {time}")


@command(group, "restore")
def restore(session: Session, key: Key) -> None:
    """Forget that an alert was acknowledged or silenced."""
    session.run(session.app.alerts.restore(key))
    session.screen.answer({"key": key, "restored": True}, f"restored {key}")
