"""`rota audit`: the audit log."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from rota.cli.moments import database_time
from rota.cli.options import AllNamespaces, Limit, Since, Until
from rota.cli.output import plain, table
from rota.cli.session import Session
from rota.cli.times import relative


def list_changes(
    session: Session,
    action: Annotated[
        str | None, typer.Option(help="Only show this action, such as pause.")
    ] = None,
    actor: Annotated[
        str | None,
        typer.Option(help="Only show changes by this user or token, as the list names it."),
    ] = None,
    subject: Annotated[
        str | None, typer.Option(help='Only show changes of this subject, such as "queue mail".')
    ] = None,
    interface: Annotated[
        Literal["rest", "dashboard", "cli", "python"] | None,
        typer.Option(help="Only show changes made through this interface."),
    ] = None,
    since: Since = None,
    until: Until = None,
    before: Annotated[
        int | None, typer.Option(metavar="ID", help="Only show older changes than this one.")
    ] = None,
    limit: Limit = 50,
    all_namespaces: AllNamespaces = False,
) -> None:
    """List changes, newest first: who changed what, when and from where."""
    screen = session.screen
    now = database_time(session)
    namespace = None if all_namespaces else session.app.settings.namespace
    entries = session.run(
        session.installation.audit.list(
            namespace, action=action, actor=actor, subject=subject, interface=interface,
            since=since.at(now) if since else None, until=until.at(now) if until else None,
            before=before, limit=limit,
        )
    )  # fmt: skip
    if not screen.listing(entries, "No matching changes."):
        return
    rows = table("id", "when", "who", "from", "did", "to", right=["id", "when"])
    for entry in entries:
        origin = " ".join(part for part in (entry.interface, entry.address) if part)
        rows.add_row(
            str(entry.id), relative(entry.at, now), plain(entry.actor), plain(origin or entry.via),
            plain(entry.action), plain(entry.subject),
        )  # fmt: skip
    screen.show(rows)
    if len(entries) == limit:
        screen.note(f"There may be more: `rota audit --before {entries[-1].id}`.")
