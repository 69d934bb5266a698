"""`rota events`: what people should hear of."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.jobs import database_now
from rota.cli.output import plain, table
from rota.cli.session import Session, command
from rota.cli.times import relative
from rota.operations.event_text import sentence
from rota.operations.webhooks import KINDS
from rota.store.events import Event


def add_to(group: typer.Typer) -> None:
    command(group, "events")(list_events)


def list_events(
    session: Session,
    kind: Annotated[
        str | None, typer.Option(help=f"Only of this kind: {', '.join(KINDS)}.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many.")] = 50,
) -> None:
    """What people should hear of, the newest first."""
    screen = session.screen
    events = session.run(session.app.events.list(kind=kind, limit=limit))
    if screen.as_json:
        screen.json(events)
        return
    if not events:
        screen.note("Nothing to hear of.")
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
    """The sentence that webhooks tell, without the task: it has a column of its own."""
    told = sentence({"kind": event.kind, "task": event.task, "detail": event.detail})
    return plain(told.removeprefix(f"{event.task} ").removeprefix(f"{event.task}: "))
