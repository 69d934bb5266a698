"""`rota sinks`: topics of brokers that events go to."""

from __future__ import annotations

from typing import Annotated

from rich.text import Text

from rota.cli.options import Yes, argument, option
from rota.cli.output import state
from rota.cli.session import Session, command, make_group
from rota.cli.times import relative
from rota.core.administration import SinkStatus

group = make_group("Manage sinks: topics of brokers that events go to.")
_Name = Annotated[str, argument("NAME", "Name of the sink.")]


@command(group, "list")
def list_sinks(session: Session) -> None:
    """List the sinks of the namespace, with how far events were sent."""
    sinks = session.run(session.app.sinks.list())
    session.screen.listing(
        sinks,
        'No sinks. Code declares them: app.sink("kafka://host/TOPIC")',
        ("name", "target", "state", "sent", "skipped", "moved"),
        (
            (each.name, each.target, _state(each), f"{each.sent:,}", f"{each.skipped:,}",
             relative(each.moved_at, session.now) if each.moved_at else "never")
            for each in sinks
        ),
        whole=["name"], right=["sent", "skipped"],
    )  # fmt: skip


def _state(sink: SinkStatus) -> Text:
    if sink.paused_at:
        return state("paused")
    if sink.fault:
        return state("failed")
    return state("live") if sink.sender else state("no node")


@command(group, "show")
def show(session: Session, name: _Name) -> None:
    """Show a sink: its position, and why it doesn't send if it doesn't."""
    found = session.run(session.app.sinks.get(name))
    session.screen.answer(
        found,
        f"{found.name}: events go to {found.target}",
        f"position {found.position or 'not started yet'}",
        f"sent {found.sent}, skipped {found.skipped}",
        f"sent by {found.sender or 'no node'}",
        f"paused since {found.paused_at}" if found.paused_at else "not paused",
        f"fault {found.fault}" if found.fault else "no fault",
    )


@command(group, "pause")
def pause(session: Session, name: _Name) -> None:
    """Pause a sink: events wait, for as long as events are kept."""
    session.screen.answer(session.run(session.app.sinks.pause(name)), f"paused {name}")


@command(group, "resume")
def resume(session: Session, name: _Name) -> None:
    """Resume a sink where it was paused."""
    session.screen.answer(session.run(session.app.sinks.resume(name)), f"resumed {name}")


@command(group, "rewind")
def rewind(
    session: Session,
    name: _Name,
    to: Annotated[
        str | None,
        option("Position after which events are sent again. (default: all that are kept)",
               "--position", metavar="POSITION"),
    ] = None,
    yes: Yes = False,
) -> None:  # fmt: skip
    """Set a sink back: events after a position are sent again."""
    session.confirm(f"Send the events of {name} again?", yes)
    session.screen.answer(session.run(session.app.sinks.rewind(name, to)), f"rewound {name}")


@command(group, "remove")
def remove(session: Session, name: _Name, yes: Yes = False) -> None:
    """Remove a sink and its position. While code declares it, it is made anew."""
    session.confirm(f"Remove sink {name}?", yes)
    session.screen.answer(session.run(session.app.sinks.remove(name)), f"removed {name}")
