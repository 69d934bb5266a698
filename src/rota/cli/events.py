"""`rota events`: what Rota noticed."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.jobs import database_now
from rota.cli.options import Limit
from rota.cli.output import plain, table
from rota.cli.session import Session
from rota.cli.times import relative
from rota.operations.event_text import sentence
from rota.operations.webhooks import KINDS
from rota.store.events import Event


def list_events(
    session: Session,
    kind: Annotated[
        str | None, typer.Option(help=f"Only show this kind: {', '.join(KINDS)}.")
    ] = None,
    limit: Limit = 50,
) -> None:
    """List events, newest first."""
    screen = session.screen
    events = session.run(session.app.events.list(kind=kind, limit=limit))
    if not screen.listing(events, "No events."):
        return
    now = session.run(database_now(session))
    rows = table("when", "kind", "task", "what", "job", right=["when"], whole=["job"])
    for event in events:
        rows.add_row(
            relative(event.at, now), event.kind, plain(event.task), describe(event),
            str(event.job_id or ""),
        )  # fmt: skip
    screen.show(rows)


def describe(event: Event) -> str:
    """Describe an event as webhooks do, without the task, which has a column of its own."""
    told = sentence({"kind": event.kind, "task": event.task, "detail": event.detail})
    return plain(told.removeprefix(f"{event.task} ").removeprefix(f"{event.task}: "))
