"""`rota persons`: persons for whom values were sealed, and their erasure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from rota.cli.options import LongLimit, Yes, argument, option
from rota.cli.session import Session, callback, command
from rota.cli.times import relative
from rota.core.administration import Person

group = typer.Typer(help="List and erase persons for whom values were sealed.")


@callback(group, database_only=True)
@command(group, "list", database_only=True)
def list_persons(
    session: Session,
    erased: Annotated[bool, option("Only those who were erased.")] = False,
    limit: LongLimit = 100,
) -> None:
    """List persons for whom values were sealed, without their names: erased ones first."""
    found = session.run(session.app.persons.list(erased=True if erased else None, limit=limit))
    session.screen.listing(
        found, "No values were sealed for a person.",
        ("id", "since", "erased"),
        (
            (str(person.id), relative(person.created_at, session.now),
             "" if person.erased_at is None else relative(person.erased_at, session.now))
            for person in found
        ),
        whole=["id"],
    )  # fmt: skip


@command(group, "show", database_only=True)
def show(
    session: Session,
    person: Annotated[str, argument("PERSON", "The name that the application has for them.")],
) -> None:
    """Show the id of a person, by which archives and audit records name them."""
    found = session.run(session.app.persons.find(person))
    session.screen.answer(found, f"{found.id}, since {found.created_at:%Y-%m-%d %H:%M:%S %Z}")


@command(group, "erase", database_only=True)
def erase(
    session: Session,
    person: Annotated[
        str | None, argument("[PERSON]", "The name that the application has for them.")
    ] = None,
    id: Annotated[list[UUID] | None, option("Id of a person, instead. Repeatable.")] = None,
    file: Annotated[
        Path | None,
        option("File with an id in each line: erase these again after a restore.", "--ids"),
    ] = None,
    yes: Yes = False,
) -> None:
    """Erase a person: destroy their key, so that nobody can read again what was sealed for them."""
    if (person is not None) + bool(id) + (file is not None) != 1:
        raise typer.BadParameter("give one of: PERSON, --id, --ids")
    if person is not None:
        session.confirm(f"Erase {person} for good? Nobody can undo it", yes)
        gone: list[Person] = [session.run(session.app.persons.erase(person))]
    else:
        ids = _ids_in(file) if file is not None else id or []
        session.confirm(f"Erase {len(ids):,} persons for good? Nobody can undo it", yes)
        gone = list(session.run(session.app.persons.erase_ids(ids)))
    session.screen.answer(gone, *(f"erased {each.id}" for each in gone))
    if not gone:
        session.screen.note(
            "None of them has a key: they were erased before, or are not known here."
        )


def _ids_in(file: Path) -> list[UUID]:
    try:
        lines = file.read_text("utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"--ids {file}: {error}") from None
    ids = []
    for number, line in enumerate(lines, 1):
        try:
            ids.append(UUID(line))
        except ValueError:
            raise typer.BadParameter(
                f"--ids {file}, line {number}: {line[:60]!r} is no id"
            ) from None
    return ids
