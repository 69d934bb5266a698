"""`rota tokens`: API tokens for programs that use the server."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from rota.cli.options import AllNamespaces, TokenRole, Yes, argument, duration, option
from rota.cli.session import Session, callback, command
from rota.core.administration import TokenInfo

group = typer.Typer(help="Manage API tokens.")


@callback(group)
@command(group, "list")
def list_tokens(
    session: Session,
    all_namespaces: AllNamespaces = False,
    revoked: Annotated[bool, option("Include revoked tokens.")] = False,
) -> None:
    """List API tokens, without their secrets, which are not stored."""
    namespace = None if all_namespaces else session.app.settings.namespace
    tokens = session.run(session.installation.tokens.list(namespace, revoked=revoked))
    session.screen.listing(
        tokens, "No tokens. Create one: rota tokens create NAME --role viewer",
        ("token", "name", "namespace", "role", "scopes", "expires", "last used", ""),
        (
            (
                f"rota_{token.prefix}_...", token.name, token.namespace, token.role,
                _limits(token), _moment(token.expires_at, "never"),
                _moment(token.last_used_at, "-"), "revoked" if token.revoked_at else "",
            )
            for token in tokens
        ),
        whole=["token"],
    )  # fmt: skip


def _limits(token: TokenInfo) -> str:
    limits = [*token.tasks, *(f"queue {queue}" for queue in token.queues)]
    return ", ".join(limits or token.scopes) or "all"


def _moment(at: datetime | None, otherwise: str) -> str:
    return f"{at:%Y-%m-%d %H:%M}" if at else otherwise


@command(group, "create")
def create(
    session: Session,
    name: Annotated[str, argument("NAME", "Describes what the token is for.")],
    role: TokenRole = "viewer",
    scope: Annotated[
        list[str] | None,
        option("Limit it to a scope: jobs, jobs:read, schedules:write. Repeatable."),
    ] = None,
    task: Annotated[
        list[str] | None,
        option("Limit it to submitting jobs of a task; mail.* for several. Repeatable."),
    ] = None,
    queue: Annotated[
        list[str] | None,
        option("Limit it to submitting jobs to a queue; mail.* for several. Repeatable."),
    ] = None,
    expires: Annotated[
        float | None, duration("Time until it expires: 90d, 12h. (default: never)")
    ] = None,
    submits_per_second: Annotated[
        float | None, option("Limit the jobs that its requests submit; a second's worth may burst.")
    ] = None,
    all_namespaces: AllNamespaces = False,
) -> None:
    """Create an API token, and show it once."""
    created = session.run(
        session.installation.tokens.create(
            name, namespace=session.app.settings.namespace, everywhere=all_namespaces, role=role,
            scopes=scope or (), tasks=task or (), expires_in=expires,
            submits_per_second=submits_per_second, queues=queue or (),
        )
    )  # fmt: skip
    session.screen.answer(created, created.token)
    session.screen.note("The token is not shown again. Send it as `Authorization: Bearer ...`.")


@command(group, "revoke")
def revoke(
    session: Session,
    prefix: Annotated[str, argument("TOKEN", "Prefix of the token, as `rota tokens` lists it.")],
    made: Annotated[bool, option("Also revoke the tokens that were created with it.")] = False,
    yes: Yes = False,
) -> None:
    """Revoke an API token, within five seconds on every server."""
    # The argument may be what the list shows, or a whole token.
    prefix = prefix.split("_")[1] if prefix.startswith("rota_") else prefix
    session.confirm(f"Revoke token rota_{prefix}_...?", yes)
    revoked = session.run(session.installation.tokens.revoke(prefix, made=made))
    lines = [f"revoked rota_{info.prefix}_... ({info.name})" for info in revoked]
    session.screen.answer(revoked if made else revoked[0], *lines)
