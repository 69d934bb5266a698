"""`rota namespaces`: the namespaces of an installation, their limits and their encryption."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.options import NamespaceName, Yes
from rota.cli.output import plain, table
from rota.cli.session import Session, callback, command
from rota.store.quotas import Limits

group = typer.Typer(help="Manage namespaces: their limits and their encryption.")


@callback(group)
@command(group, "list")
def list_namespaces(session: Session) -> None:
    """List the namespaces that were used or have limits."""
    namespaces, screen = session.installation.namespaces, session.screen
    found = session.run(namespaces.list())
    if not screen.listing(found, "No namespaces. The first submit to a namespace creates it."):
        return
    columns = ("max jobs", "max payload bytes", "submits per second")
    encrypted = session.run(namespaces.encrypted())
    rows = table("namespace", *columns, "encrypted", right=columns)
    for each in found:
        limits = each.limits
        shown = (limits.max_jobs, limits.max_payload_bytes, limits.submits_per_second)
        cells = ["-" if number is None else f"{number:,}" for number in shown]
        rows.add_row(plain(each.name), *cells, "yes" if each.name in encrypted else "no")
    screen.show(rows)


@command(group, "limit")
def limit(
    session: Session,
    name: NamespaceName,
    max_jobs: Annotated[
        int | None, typer.Option(min=0, help="Maximum number of waiting, running and failed jobs.")
    ] = None,
    max_payload_bytes: Annotated[
        int | None, typer.Option(min=0, help="Maximum size of those jobs' payloads in total.")
    ] = None,
    submits_per_second: Annotated[
        float | None, typer.Option(help="Maximum rate of submits; a second's worth may burst.")
    ] = None,
) -> None:
    """Limit what a namespace may submit through the server. An omitted option means no limit."""
    limits = Limits(
        max_jobs=max_jobs, max_payload_bytes=max_payload_bytes,
        submits_per_second=submits_per_second,
    )  # fmt: skip
    namespace = session.run(session.installation.namespaces.set_limits(name, limits))
    session.screen.answer(namespace, f"limited {name}; it holds within five seconds")


@command(group, "unlimit")
def unlimit(session: Session, name: NamespaceName, yes: Yes = False) -> None:
    """Remove the limits of a namespace. Its jobs stay."""
    session.confirm(f"Remove the limits of namespace {name}?", yes)
    session.run(session.installation.namespaces.remove_limits(name))
    session.screen.answer({"namespace": name, "limits": None}, f"removed the limits of {name}")


@command(group, "encrypt")
def encrypt(session: Session, name: NamespaceName) -> None:
    """Encrypt what is submitted to a namespace from now on. All its users need the keys."""
    session.run(session.installation.namespaces.set_encrypted(name, True))
    session.screen.answer(
        {"namespace": name, "encrypted": True},
        f"new jobs of {name} are encrypted within five seconds",
    )
    session.screen.note("`rota encrypt --rotate` encrypts what is stored already.")


@command(group, "decrypt")
def decrypt(session: Session, name: NamespaceName) -> None:
    """Stop encrypting what is submitted to a namespace. Encrypted values stay encrypted."""
    session.run(session.installation.namespaces.set_encrypted(name, False))
    session.screen.answer(
        {"namespace": name, "encrypted": False}, f"new jobs of {name} are no longer encrypted"
    )
