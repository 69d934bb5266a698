"""`rota schedules lint`: warnings about schedules."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.output import plain, table
from rota.cli.session import Session, command


def add_to(group: typer.Typer) -> None:
    command(group, "lint")(lint_schedules)


def lint_schedules(
    session: Session,
    herd: Annotated[
        int, typer.Option(min=2, help="Number of schedules in the same minute that is too many.")
    ] = 100,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 on any warning.")] = False,
) -> None:
    """Check schedules for problems: clock changes, too many at once, too often for their duration, an
    end soon, an unregistered task, or arguments that the task doesn't take."""
    warnings = session.run(session.app.schedules.lint(herd))
    if session.screen.structured:
        session.screen.document(warnings)
    elif not warnings:
        count = len(session.run(session.app.schedules.list()))
        session.screen.note(f"No warnings about {count:,} schedule{'' if count == 1 else 's'}.")
    else:
        rows = table("warning", "message", whole=["warning"])
        for warning in warnings:
            rows.add_row(warning.code, plain(warning.message))
        session.screen.show(rows)
    if strict and warnings:
        raise typer.Exit(1)
