"""`rota grants`: the privileges that another database role needs."""

from __future__ import annotations

from typing import Annotated

from rota.cli.options import argument, option
from rota.cli.session import Session
from rota.store.grants import Purpose


def grants(
    session: Session,
    role: Annotated[str, argument("ROLE", "A role of the database.")],
    purpose: Annotated[Purpose, option("Purpose of the role.", "--for")] = "submit",
    apply: Annotated[bool, option("Run the statements instead of printing them.")] = False,
) -> None:
    """Print or apply the least privileges of a database role: to submit jobs, or to run nodes."""
    roles = session.installation.database_roles
    statements = (
        session.run(roles.grant(role, purpose)) if apply else roles.statements(role, purpose)
    )
    session.screen.answer({"role": role, "statements": statements, "applied": apply}, *statements)
    session.screen.note(
        f"Applied to {role}." if apply else "Nothing was changed: `--apply` runs these statements."
    )
