"""`rota audit`: the audit log."""

from __future__ import annotations

from typing import Annotated, Literal

from rota.cli.options import AllNamespaces, Limit, Since, Until, option
from rota.cli.session import Session
from rota.cli.times import relative


def list_changes(
    session: Session,
    action: Annotated[str | None, option("Only show this action, such as pause.")] = None,
    actor: Annotated[
        str | None, option("Only show changes by this user or token, as the list names it.")
    ] = None,
    subject: Annotated[
        str | None, option('Only show changes of this subject, such as "queue mail".')
    ] = None,
    interface: Annotated[
        Literal["rest", "dashboard", "cli", "python"] | None,
        option("Only show changes made through this interface."),
    ] = None,
    since: Since = None,
    until: Until = None,
    before: Annotated[
        int | None, option("Only show older changes than this one.", metavar="ID")
    ] = None,
    limit: Limit = 50,
    all_namespaces: AllNamespaces = False,
) -> None:
    """List changes, newest first: who changed what, when and from where."""
    namespace = None if all_namespaces else session.app.settings.namespace
    entries = session.run(
        session.installation.audit.list(
            namespace, action=action, actor=actor, subject=subject, interface=interface,
            since=session.at(since), until=session.at(until), before=before, limit=limit,
        )
    )  # fmt: skip
    shown = session.screen.listing(
        entries, "No matching changes.", ("id", "when", "who", "from", "did", "to"),
        (
            (str(entry.id), relative(entry.at, session.now), entry.actor,
             " ".join(part for part in (entry.interface, entry.address) if part) or entry.via,
             entry.action, entry.subject)
            for entry in entries
        ),
        right=["id", "when"],
    )  # fmt: skip
    if shown and len(entries) == limit:
        session.screen.note(f"There may be more: `rota audit --before {entries[-1].id}`.")
