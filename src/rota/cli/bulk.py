"""`rota jobs changes|undo`: actions on many jobs, what became of them, and their undo."""

from __future__ import annotations

from typing import Annotated

from rota.cli.jobs import jobs_group, parse_id
from rota.cli.options import argument
from rota.cli.session import Session, command
from rota.cli.times import relative


@command(jobs_group, "changes")
def changes(session: Session) -> None:
    """List bulk actions, newest first, with the states of their jobs."""
    found = session.run(session.app.bulk.list())
    session.screen.listing(
        found, "No bulk actions in the last week.", ("when", "by", "outcome", "undo", "id"),
        (
            (relative(one.at, session.now), one.by, one.sentence,
             f"{one.undone} brought back" if one.undone_at else f"{one.can_undo:,} possible",
             str(one.id))
            for one in found
        ),
        right=["when"], whole=["id"],
    )  # fmt: skip


@command(jobs_group, "undo")
def undo(
    session: Session,
    id: Annotated[str, argument("ID", "Id of the bulk action, as `rota jobs changes` shows it.")],
) -> None:
    """Undo a bulk action: bring back the jobs that are still as it left them."""
    done = session.run(session.app.bulk.undo(parse_id(id)))
    session.screen.answer(done, f"brought back {done.undone:,} of {done.jobs:,} jobs")
