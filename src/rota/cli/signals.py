"""`rota signals`: send signals to durable functions, and list them."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.options import Limit, argument, option
from rota.cli.runs import Once, SignalPayload, tell_sent
from rota.cli.session import Session, callback, command
from rota.cli.submit import read_json

group = typer.Typer(help="Send signals to durable functions, and list them.")


@callback(group)
@command(group, "list")
def list_signals(
    session: Session,
    name: Annotated[str | None, option("Only show signals of this name.")] = None,
    key: Annotated[str | None, option("Only show signals with this key.")] = None,
    limit: Limit = 100,
) -> None:
    """List signals, newest first, and whether a function has taken them."""
    found = session.run(session.app.signals.list(name=name, key=key, limit=limit))
    session.screen.listing(
        found, "No signals.", ("signal", "key", "sent", "taken by"),
        (
            (
                each.name, each.key, f"{each.sent_at:%Y-%m-%d %H:%M:%S}",
                "(waiting)" if each.taken_at is None else f"run {each.run_id}",
            )
            for each in found
        ),
    )  # fmt: skip


@command(group, "send")
def send(
    session: Session,
    name: Annotated[str, argument("NAME", "Name of the signal.")],
    key: Annotated[str, argument("KEY", "Key that the function waits for.")],
    payload: SignalPayload = "null",
    once: Once = None,
) -> None:
    """Send a signal: to the function that waits for it, or to the next one that will."""
    value = read_json(payload, "PAYLOAD")
    tell_sent(session, session.run(session.app.signals.send(name, key, value, once=once)))
