"""`rota audit`: the audit log, and its export."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from rota.cli.options import TIMES, AllNamespaces, Limit, Since, Until, argument, moment, option
from rota.cli.output import count
from rota.cli.session import Session, callback, command
from rota.cli.times import When, relative
from rota.core.administration import AuditEntry
from rota.core.audit_formats import AuditFormat, written
from rota.errors import ConfigError
from rota.lib.row_files import whole_file

Action = Annotated[str | None, option("Only show this action, such as pause.")]
Actor = Annotated[
    str | None, option("Only show changes by this user or token, as the list names it.")
]
Subject = Annotated[str | None, option('Only show changes of this subject, such as "queue mail".')]
Interface = Annotated[
    Literal["rest", "dashboard", "cli", "python"] | None,
    option("Only show changes made through this interface."),
]

_PAGE = 1_000

group = typer.Typer(help="List and export changes: who changed what, when and from where.")


@callback(group)
@command(group, "list")
def list_changes(
    session: Session,
    action: Action = None,
    actor: Actor = None,
    subject: Subject = None,
    interface: Interface = None,
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


@command(group, "export")
def export(
    session: Session,
    file: Annotated[Path, argument("FILE", "File to write; - for the standard output.")],
    since: Annotated[When, moment(f"Start of the period: {TIMES}", "--from")],
    until: Annotated[When | None, moment("End of the period, not included.", "--to")] = None,
    action: Action = None,
    actor: Actor = None,
    subject: Subject = None,
    interface: Interface = None,
    form: Annotated[
        AuditFormat,
        option(
            "Names of the fields: Rota's own, those of the Elastic Common Schema, or those of Splunk's "
            "Common Information Model.",
            "--format",
        ),
    ] = "json",
    all_namespaces: AllNamespaces = False,
) -> None:
    """Export all changes of a period as JSON lines, newest first.

    They are compressed if the name of the file ends with .gz. Changes that are made meanwhile are not in
    it.
    """
    first, end = session.at(since), session.at(until) or session.now
    namespace = None if all_namespaces else session.app.settings.namespace
    entries = _all_entries(
        session, namespace, action=action, actor=actor, subject=subject, interface=interface,
        since=first, until=end,
    )  # fmt: skip
    line = partial(written, form=form, installation=session.app.settings.installation or "rota")
    if str(file) == "-":
        session.run(_write(entries, line, sys.stdout.buffer))
        sys.stdout.buffer.flush()
        return
    if not file.parent.is_dir():
        raise ConfigError(f"there is no folder {str(file.parent)!r} to write {file.name} to")
    try:
        with whole_file(file) as target:
            total = session.run(_write(entries, line, target))
    except OSError as error:
        raise ConfigError(f"can't write {file}: {error.strerror or error}") from None
    if session.screen.structured:
        session.screen.document({"file": str(file), "changes": total})
    else:
        session.screen.say(f"{count(total, 'change')} written to {file}.")


async def _all_entries(
    session: Session, namespace: str | None, **filters: Any
) -> AsyncIterator[AuditEntry]:
    """Read page after page, from the newest back: what is added meanwhile is newer, and not read."""
    before: int | None = None
    while True:
        page = await session.installation.audit.list(
            namespace, **filters, before=before, limit=_PAGE
        )
        for entry in page:
            yield entry
        if len(page) < _PAGE:
            return
        before = page[-1].id


async def _write(
    entries: AsyncIterator[AuditEntry], line: Callable[[AuditEntry], bytes], target: Any
) -> int:
    total = 0
    async for entry in entries:
        target.write(line(entry) + b"\n")
        total += 1
    return total
