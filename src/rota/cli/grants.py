"""`rota grants`: what another database role needs."""

from __future__ import annotations

from typing import Annotated, Literal

import asyncpg
import typer

from rota.app import App
from rota.cli.access import change_of
from rota.cli.session import Session, command
from rota.errors import ConfigError, NotFound
from rota.store.grants import grant_statements


def add_to(group: typer.Typer) -> None:
    command(group, "grants")(grants)


def grants(
    session: Session,
    role: Annotated[str, typer.Argument(metavar="ROLE", help="A role of the database.")],
    purpose: Annotated[
        Literal["submit"], typer.Option("--for", help="What the role is to do.")
    ] = "submit",
    apply: Annotated[
        bool, typer.Option("--apply", help="Run the statements instead of printing them.")
    ] = False,
) -> None:
    """Print or apply the least privileges that a role needs to submit jobs in its own transactions."""
    statements = grant_statements(purpose, role, session.app.settings.schema)
    if apply:
        session.run(_apply(session.app, role, purpose, statements))
    if session.screen.as_json:
        session.screen.json({"role": role, "statements": statements, "applied": apply})
        return
    for statement in statements:
        session.screen.say(statement)
    session.screen.note(
        f"Applied to {role}." if apply else "Nothing was changed: `--apply` runs these statements."
    )


async def _apply(app: App, role: str, purpose: str, statements: list[str]) -> None:
    after = {"for": purpose}
    async with change_of(app, "grant", f"role {role}", after=after) as change:
        try:
            for statement in statements:
                await change.connection.execute(statement)
        except asyncpg.UndefinedObjectError:
            raise NotFound(
                f"the database has no role {role!r}: create it first, `create role {role} login`"
            ) from None
        except asyncpg.InsufficientPrivilegeError as error:
            raise ConfigError(
                f"this user may not grant that: {error}. Run `rota grants` as the owner of Rota's "
                "tables, the role that runs `rota migrate`"
            ) from None
