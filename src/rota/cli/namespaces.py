"""`rota namespaces`: the namespaces of an installation, their limits and their encryption."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.options import NamespaceName, Yes, option
from rota.cli.session import Session, callback, command
from rota.core.administration import Limits

group = typer.Typer(help="Manage namespaces: their limits and their encryption.")


@callback(group)
@command(group, "list")
def list_namespaces(session: Session) -> None:
    """List the namespaces that were used or have limits."""
    namespaces = session.installation.namespaces
    found = session.run(namespaces.list())
    encrypted = session.run(namespaces.encrypted())
    limits = {"max jobs": "max_jobs", "max payload bytes": "max_payload_bytes",
              "submits per second": "submits_per_second", "max depth": "max_depth"}  # fmt: skip
    session.screen.listing(
        found, "No namespaces. The first submit to a namespace creates it.",
        ("namespace", *limits, "encrypted"),
        (
            (
                each.name, *(_limit(getattr(each.limits, field)) for field in limits.values()),
                "yes" if each.name in encrypted else "no",
            )
            for each in found
        ),
        right=tuple(limits),
    )  # fmt: skip


def _limit(number: float | None) -> str:
    return "-" if number is None else f"{number:,}"


@command(group, "limit")
def limit(
    session: Session,
    name: NamespaceName,
    max_jobs: Annotated[
        int | None, option("Maximum number of waiting, running and failed jobs.", min=0)
    ] = None,
    max_payload_bytes: Annotated[
        int | None, option("Maximum size of those jobs' payloads in total.", min=0)
    ] = None,
    submits_per_second: Annotated[
        float | None, option("Maximum rate of submits; a second's worth may burst.")
    ] = None,
    max_depth: Annotated[
        int | None,
        option("Maximum number of jobs that have not ended; also for submits past servers.", min=1),
    ] = None,
) -> None:
    """Limit what a namespace may submit. An omitted option means no limit."""
    limits = Limits(
        max_jobs=max_jobs, max_payload_bytes=max_payload_bytes,
        submits_per_second=submits_per_second, max_depth=max_depth,
    )  # fmt: skip
    namespace = session.run(session.installation.namespaces.set_limits(name, limits))
    session.screen.answer(namespace, f"limited {name}, within five seconds on every server")


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
