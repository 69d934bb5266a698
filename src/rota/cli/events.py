"""`rota events`: the events of the namespace."""

from __future__ import annotations

from typing import Annotated

from rota.cli.options import Limit, option
from rota.cli.session import Session
from rota.cli.times import relative
from rota.model import Event
from rota.operations.event_text import sentence
from rota.operations.webhooks import KINDS


def list_events(
    session: Session,
    kind: Annotated[str | None, option(f"Only show this kind: {', '.join(KINDS)}.")] = None,
    limit: Limit = 50,
) -> None:
    """List events, newest first."""
    events = session.run(session.app.events.list(kind=kind, limit=limit))
    session.screen.listing(
        events, "No events.", ("when", "kind", "task", "what", "job"),
        (
            (relative(event.at, session.now), event.kind, event.task, _describe(event),
             str(event.job_id or ""))
            for event in events
        ),
        right=["when"], whole=["job"],
    )  # fmt: skip


def _describe(event: Event) -> str:
    """Describe an event as webhooks do, without the task, which has a column of its own."""
    text = sentence({"kind": event.kind, "task": event.task, "detail": event.detail})
    return text.removeprefix(f"{event.task} ").removeprefix(f"{event.task}: ")
