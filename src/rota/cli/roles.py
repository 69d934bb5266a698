"""`rota roles`: what tokens and users may do."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.options import Yes, argument, option
from rota.cli.session import Session, callback, command
from rota.core.administration import RoleInfo

group = typer.Typer(help="Manage the roles of tokens and users.")

Name = Annotated[str, argument("NAME", "Name of the role.")]


@callback(group)
@command(group, "list")
def list_roles(session: Session) -> None:
    """List the roles: the built-in ones, then your own."""
    found = session.run(session.installation.roles.list())
    session.screen.listing(
        found, "",
        ("role", "permissions", "limits", "description"),
        ((role.name, _permissions(role), _limits(role), role.description) for role in found),
        whole=["role"],
    )  # fmt: skip


def _permissions(role: RoleInfo) -> str:
    return f"{len(role.permissions)} (built in)" if role.built_in else ", ".join(role.permissions)


def _limits(role: RoleInfo) -> str:
    return ", ".join([
        *(f"in {name}" for name in role.namespaces), *(f"task {name}" for name in role.tasks),
        *(f"queue {name}" for name in role.queues),
    ]) or "-"  # fmt: skip


@command(group, "show")
def show(session: Session, name: Name) -> None:
    """Show what a role permits, and where."""
    role = session.run(session.installation.roles.get(name))
    lines = [*role.permissions]
    if _limits(role) != "-":
        lines.append(f"limited to: {_limits(role)}")
    session.screen.answer(role, *lines)


@command(group, "permissions")
def list_permissions(session: Session) -> None:
    """List the permissions that a role can have."""
    found = session.installation.roles.permissions()
    session.screen.answer(found, *found)


@command(group, "set")
def set_role(
    session: Session,
    name: Name,
    permission: Annotated[
        list[str], option("Permission: queues:write, or queues for all of queues. Repeatable.")
    ],
    within: Annotated[
        list[str] | None, option("Limit the role to a namespace. Repeatable.", "--in")
    ] = None,
    task: Annotated[
        list[str] | None,
        option("Limit it to submitting jobs of a task; mail.* for several. Repeatable."),
    ] = None,
    queue: Annotated[
        list[str] | None,
        option("Limit it to submitting jobs to a queue; mail.* for several. Repeatable."),
    ] = None,
    description: Annotated[str, option("What the role is for.")] = "",
) -> None:
    """Set what a role permits, within a second on every server; create it if there is none."""
    role = session.run(
        session.installation.roles.set(
            name, permissions=permission, namespaces=within or (), tasks=task or (),
            queues=queue or (), description=description,
        )
    )  # fmt: skip
    session.screen.answer(role, f"role {name}: {', '.join(role.permissions)}")


@command(group, "delete")
def delete(session: Session, name: Name, yes: Yes = False) -> None:
    """Delete a role that nobody has any more."""
    session.confirm(f"Delete role {name}?", yes)
    role = session.run(session.installation.roles.delete(name))
    session.screen.answer(role, f"deleted role {name}")
