"""`rota audit`: who changed what."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import typer

from rota.app import App
from rota.cli.moments import When, database_time, parse_when
from rota.cli.output import plain, table
from rota.cli.session import Session, command
from rota.cli.times import relative
from rota.store.audit import AuditEntry, AuditStore

Since = Annotated[
    When | None,
    typer.Option(
        metavar="TIME", parser=parse_when,
        help="Only changes from then on: -2d, 2027-01-31 (UTC) or 2027-01-31T09:00+01:00.",
    ),
]  # fmt: skip


def add_to(group: typer.Typer) -> None:
    command(group, "audit")(list_changes)


def list_changes(
    session: Session,
    action: Annotated[str | None, typer.Option(help="Only this action: pause, say.")] = None,
    actor: Annotated[
        str | None, typer.Option(help="Only by this user or token, as the list names it.")
    ] = None,
    subject: Annotated[
        str | None, typer.Option(help='Only changes of this: "queue mail", say.')
    ] = None,
    interface: Annotated[
        Literal["rest", "dashboard", "cli", "python"] | None,
        typer.Option(help="Only changes made this way."),
    ] = None,
    since: Since = None,
    before: Annotated[
        int | None, typer.Option(metavar="ID", help="Only older changes: the id of the last one.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many.")] = 50,
    everywhere: Annotated[
        bool, typer.Option("--everywhere", help="Changes in all namespaces.")
    ] = False,
) -> None:
    """List changes, newest first: who changed what, when and from where."""
    screen = session.screen
    now = database_time(session)
    namespace = None if everywhere else session.app.settings.namespace
    entries = session.run(
        _list(
            session.app, namespace, action=action, actor=actor, subject=subject,
            interface=interface, since=since.at(now) if since else None, before=before, limit=limit,
        )
    )  # fmt: skip
    if screen.as_json:
        screen.json(entries)
        return
    if not entries:
        screen.note("No change was recorded that matches.")
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


async def _list(
    app: App, namespace: str | None, *, action: str | None, actor: str | None,
    subject: str | None, interface: str | None, since: datetime | None, before: int | None,
    limit: int,
) -> list[AuditEntry]:  # fmt: skip
    store = AuditStore((await app.store()).database)
    return await store.list(
        namespace, action=action, actor=actor, subject=subject, interface=interface, since=since,
        before=before, limit=limit,
    )  # fmt: skip
