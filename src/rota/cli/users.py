"""`rota users`: the users of the dashboard."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rota.cli.options import AllNamespaces, UserRole, Yes, argument, option
from rota.cli.session import Session, callback, command

group = typer.Typer(help="Manage the users of the dashboard.")

Name = Annotated[str, argument("NAME", "An e-mail address, or a short name.")]


@callback(group)
@command(group, "list")
def list_users(session: Session) -> None:
    """List the users who may log in, and their roles by namespace."""
    found = session.run(session.installation.users.list(None))
    session.screen.listing(
        found, "No users. Add one: rota users add NAME --role operator",
        ("name", "roles", "password", "provider"),
        (
            (
                user.name, ", ".join(f"{role} of {name}" for name, role in user.memberships.items()),
                "yes" if user.has_password else "no", user.issuer or "-",
            )
            for user in found
        ),
    )  # fmt: skip


@command(group, "add")
def add(
    session: Session,
    name: Name,
    role: UserRole = "viewer",
    password: Annotated[
        bool, option("Ask for a password; from a pipe, read its first line.")
    ] = False,
    all_namespaces: AllNamespaces = False,
) -> None:
    """Add a user, or change the role or password of one."""
    added = session.run(
        session.installation.users.add(
            name, role=role, namespace=session.app.settings.namespace, everywhere=all_namespaces,
            password=_ask_password() if password else None,
        )
    )  # fmt: skip
    session.screen.answer(added, f"{name} is {role} now")


def _ask_password() -> str:
    if sys.stdin.isatty():
        asked: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        return asked
    return sys.stdin.readline().rstrip("\n")


@command(group, "remove")
def remove(session: Session, name: Name, yes: Yes = False) -> None:
    """Remove a user, and end their sessions."""
    session.confirm(f"Remove user {name}?", yes)
    session.run(session.installation.users.remove(name))
    session.screen.answer({"name": name, "removed": True}, f"removed {name}")
