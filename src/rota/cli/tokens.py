"""`rota tokens`: keys for programs that use the server."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

import typer

from rota.app import App
from rota.cli.access import change_of, identity_store
from rota.cli.output import plain, table
from rota.cli.session import Session, callback, command
from rota.cli.times import parse_duration
from rota.errors import NotFound
from rota.server.identity.principal import ANYWHERE
from rota.server.identity.tokens import create_token
from rota.store.identity import TokenInfo

group = typer.Typer(help="Keys for programs that use the server: made, listed and revoked.")

Everywhere = Annotated[
    bool, typer.Option("--everywhere", help="In all namespaces, not only in this one.")
]


@callback(group)
@command(group, "list")
def list_tokens(
    session: Session,
    everywhere: Annotated[
        bool, typer.Option("--everywhere", help="Those of all namespaces.")
    ] = False,
    revoked: Annotated[bool, typer.Option("--revoked", help="Also those that were.")] = False,
) -> None:
    """The tokens of the namespace, without their secrets, which are not kept."""
    tokens = session.run(_list(session.app, everywhere, revoked))
    screen = session.screen
    if screen.as_json:
        screen.json(tokens)
        return
    if not tokens:
        screen.note("No tokens yet: `rota tokens create NAME --role viewer` makes one.")
        return
    rows = table("token", "name", "namespace", "role", "scopes", "expires", "last used", "",
                 whole=["token"])  # fmt: skip
    for token in tokens:
        rows.add_row(
            f"rota_{token.prefix}_...", plain(token.name), token.namespace, token.role,
            ", ".join(token.tasks or token.scopes) or "all", _moment(token.expires_at, "never"),
            _moment(token.last_used_at, "-"), "revoked" if token.revoked_at else "",
        )  # fmt: skip
    screen.show(rows)


def _moment(at: datetime | None, otherwise: str) -> str:
    return f"{at:%Y-%m-%d %H:%M}" if at else otherwise


async def _list(app: App, everywhere: bool, revoked: bool) -> list[TokenInfo]:
    store = await identity_store(app)
    namespace = None if everywhere else app.settings.namespace
    return await store.list_tokens(namespace, revoked=revoked)


@command(group, "create")
def create(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is for, to recognise it.")],
    role: Annotated[
        str, typer.Option(help="viewer (looks), operator (steers), admin, or worker.")
    ] = "viewer",
    scope: Annotated[
        list[str] | None,
        typer.Option(help="Only for this: jobs, jobs:read, schedules:write. Repeatable."),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(help="Only to submit jobs of this task; mail.* for several. Repeatable."),
    ] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="DURATION", help="For so long: 90d, 12h. Else for ever.")
    ] = None,
    everywhere: Everywhere = False,
) -> None:
    """Make a token, and show it once."""
    lifetime = parse_duration(expires) if expires is not None else None
    namespace = ANYWHERE if everywhere else session.app.settings.namespace
    token, info = session.run(
        _create(session.app, name, namespace, role, scope or [], task or [], lifetime)
    )
    if session.screen.as_json:
        session.screen.json({"token": token, "info": info})
        return
    session.screen.say(token)
    session.screen.note("It is shown only now. Send it as `Authorization: Bearer ...`.")


async def _create(
    app: App,
    name: str,
    namespace: str,
    role: str,
    scopes: list[str],
    tasks: list[str],
    lifetime: float | None,
) -> tuple[str, TokenInfo]:
    now = await (await app.store()).now()
    async with change_of(app, "create", "token", namespace=namespace) as change:
        token, info = await create_token(
            await identity_store(app), name=name, namespace=namespace, role=role, scopes=scopes,
            tasks=tasks, created_by="rota tokens",
            expires_at=now + timedelta(seconds=lifetime) if lifetime else None,
        )  # fmt: skip
        change.subject, change.after = f"token {info.prefix}", info
    return token, info


@command(group, "revoke")
def revoke(
    session: Session,
    prefix: Annotated[
        str, typer.Argument(metavar="TOKEN", help="Its prefix, as `rota tokens` lists it.")
    ],
    made: Annotated[
        bool, typer.Option("--made", help="Also the tokens that were made with it.")
    ] = False,
) -> None:
    """Make a token useless, within five seconds on every server."""
    revoked = session.run(_revoke(session.app, _only_prefix(prefix), made))
    if session.screen.as_json:
        session.screen.json(revoked[0] if not made else revoked)
        return
    for info in revoked:
        session.screen.say(f"revoked rota_{info.prefix}_... ({info.name})")


def _only_prefix(given: str) -> str:
    """Of a prefix, of what the list shows, or of a whole token."""
    return given.split("_")[1] if given.startswith("rota_") else given


async def _revoke(app: App, prefix: str, made: bool) -> list[TokenInfo]:
    store = await identity_store(app)
    async with change_of(app, "revoke", f"token {prefix}") as change:
        change.before = await store.get_token(prefix, None)
        revoked = await store.revoke_token(prefix, None, made=made)
        if not revoked:
            raise NotFound(f"there is no token {prefix!r}; `rota tokens --everywhere` lists them")
        change.after = revoked if made else revoked[0]
        change.namespace = revoked[0].namespace
    return revoked
