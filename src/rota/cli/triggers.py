"""`rota triggers`: messages of a broker that start jobs."""

from __future__ import annotations

from typing import Annotated

from rich.text import Text

from rota.cli.options import Yes, argument, option
from rota.cli.output import state
from rota.cli.session import Session, command, make_group
from rota.cli.times import relative
from rota.core.administration import TriggerStatus

group = make_group("Manage triggers: messages of a broker that start jobs.")
_Name = Annotated[str, argument("NAME", "Name of the trigger.")]


@command(group, "list")
def list_triggers(session: Session) -> None:
    """List the triggers of the namespace, with their lag and what became of their messages."""
    triggers = session.run(session.app.triggers.list())
    session.screen.listing(
        triggers,
        'No triggers. Code declares them: @app.on("redis://host/STREAM")',
        ("name", "task", "source", "state", "lag", "jobs", "skipped", "dead", "read"),
        (
            (each.name, each.task, each.source, _state(each),
             "-" if each.lag is None else f"{each.lag:,}", f"{each.jobs:,}", f"{each.skipped:,}",
             f"{each.dead:,}", relative(each.moved_at, session.now) if each.moved_at else "never")
            for each in triggers
        ),
        whole=["name"], right=["lag", "jobs", "skipped", "dead"],
    )  # fmt: skip


def _state(trigger: TriggerStatus) -> Text:
    if trigger.paused_at:
        return state("paused")
    if trigger.fault:
        return state("failed")
    return state("live") if trigger.reader else state("no node")


@command(group, "show")
def show(session: Session, name: _Name) -> None:
    """Show a trigger: its position, its lag, and why it doesn't read if it doesn't."""
    found = session.run(session.app.triggers.get(name))
    session.screen.answer(
        found,
        f"{found.name}: {found.source} starts {found.task}",
        f"position {found.position or 'before the first message'}",
        f"lag {'unknown' if found.lag is None else found.lag}",
        f"jobs {found.jobs}, skipped {found.skipped}, dead letters {found.dead}",
        f"read by {found.reader or 'no node'}",
        f"paused since {found.paused_at}" if found.paused_at else "not paused",
        f"fault {found.fault}" if found.fault else "no fault",
    )


@command(group, "pause")
def pause(session: Session, name: _Name) -> None:
    """Pause a trigger: its messages wait in the broker."""
    session.screen.answer(session.run(session.app.triggers.pause(name)), f"paused {name}")


@command(group, "resume")
def resume(session: Session, name: _Name) -> None:
    """Resume a trigger where it was paused."""
    session.screen.answer(session.run(session.app.triggers.resume(name)), f"resumed {name}")


@command(group, "rewind")
def rewind(
    session: Session,
    name: _Name,
    to: Annotated[
        str | None,
        option("Position of the last message to leave out. (default: the stream's beginning)",
               "--position", metavar="POSITION"),
    ] = None,
    yes: Yes = False,
) -> None:  # fmt: skip
    """Set a trigger back: messages after a position become jobs again."""
    session.confirm(f"Read {name} again? Its messages become jobs once more.", yes)
    session.screen.answer(session.run(session.app.triggers.rewind(name, to)), f"rewound {name}")


@command(group, "remove")
def remove(session: Session, name: _Name, yes: Yes = False) -> None:
    """Remove a trigger and its position. While code declares it, it is made anew."""
    session.confirm(f"Remove trigger {name}?", yes)
    session.screen.answer(session.run(session.app.triggers.remove(name)), f"removed {name}")
