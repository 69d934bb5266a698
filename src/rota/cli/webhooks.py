"""`rota webhooks add|list|remove|pause|resume|test|allow|disallow`."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

from rota.cli.jobs import database_now, parse_id
from rota.cli.output import plain, state, table
from rota.cli.session import Session, callback, command
from rota.cli.times import relative
from rota.errors import RotaError
from rota.model import Job
from rota.operations.webhooks import KINDS, Format

group = typer.Typer(help="Send events to other programs.")
_Id = Annotated[UUID, typer.Argument(metavar="ID", parser=parse_id, show_default=False)]
_Entry = Annotated[
    str, typer.Argument(metavar="HOST", help="A host, an address, or a network like 10.0.0.0/8.")
]


@callback(group)
def root(session: Session, context: typer.Context) -> None:
    session.screen.help(context)


@command(group, "add")
def add(
    session: Session,
    url: Annotated[str, typer.Argument(metavar="URL")],
    kind: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND", help=f"Only these: {', '.join(KINDS)}. Repeatable."),
    ] = None,
    form: Annotated[
        Format, typer.Option("--format", help="The event itself, or a sentence for Slack.")
    ] = "json",
) -> None:
    """Send events to a URL from now on."""
    new = session.run(session.app.webhooks.add(url, kinds=kind or (), form=form))
    if session.screen.as_json:
        session.screen.json(new)
        return
    session.screen.say(f"added {new.id}")
    session.screen.say(f"secret {new.secret}")
    session.screen.note("Deliveries are signed with this secret. It is not shown again.")


@command(group, "list")
def list_webhooks(session: Session) -> None:
    """Who hears of events."""
    screen = session.screen
    webhooks = session.run(session.app.webhooks.list())
    allowed = session.run(session.app.webhooks.allowed())
    if screen.as_json:
        screen.json({"webhooks": webhooks, "allowed": allowed})
        return
    if not webhooks:
        screen.note("No webhooks.")
    else:
        now = session.run(database_now(session))
        rows = table("id", "url", "kinds", "format", "state", "delivered", "error", whole=["id"])
        for webhook in webhooks:
            failing = f"{webhook.failures} failures" if webhook.failures else "live"
            rows.add_row(
                str(webhook.id), plain(webhook.url), ", ".join(webhook.kinds) or "all",
                webhook.format, state("paused" if webhook.paused_at else failing),
                relative(webhook.delivered_at, now) if webhook.delivered_at else "never",
                plain(webhook.last_error or ""),
            )  # fmt: skip
        screen.show(rows)
    if allowed:
        screen.note(f"Allowed besides public addresses: {', '.join(allowed)}")


@command(group, "remove")
def remove(session: Session, webhook_id: _Id) -> None:
    """Send nothing there any more."""
    session.run(session.app.webhooks.remove(webhook_id))
    _done(session, "removed", webhook_id)


@command(group, "pause")
def pause(session: Session, webhook_id: _Id) -> None:
    """Send nothing there until it is resumed."""
    session.run(session.app.webhooks.pause(webhook_id))
    _done(session, "paused", webhook_id)


@command(group, "resume")
def resume(session: Session, webhook_id: _Id) -> None:
    """Go on after a pause."""
    session.run(session.app.webhooks.resume(webhook_id))
    _done(session, "resumed", webhook_id)


@command(group, "test")
def send_test(
    session: Session,
    webhook_id: _Id,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds to wait for the delivery.")] = 30,
) -> None:
    """Send a test event there, and see whether it arrives."""
    job = session.run(_deliver(session, webhook_id, timeout))
    if job.state != "succeeded":
        raise RotaError(f"not delivered: {job.error.message if job.error else job.state}")
    if session.screen.as_json:
        session.screen.json({"job": job.id, "result": job.result})
    else:
        session.screen.say(f"delivered: {job.result}")


async def _deliver(session: Session, webhook_id: UUID, timeout: float) -> Job:
    handle = await session.app.webhooks.test(webhook_id)
    try:
        return await handle.wait(timeout)
    except TimeoutError:
        raise RotaError(
            f"job {handle.id} has not been run within {timeout:g} s: is a worker alive that serves "
            "the queue webhooks? `rota jobs explain` tells"
        ) from None


@command(group, "allow")
def allow(session: Session, entry: _Entry) -> None:
    """Let webhooks of this namespace go to an address that isn't public."""
    session.run(session.app.webhooks.allow(entry))
    _done(session, "allowed", entry)


@command(group, "disallow")
def disallow(session: Session, entry: _Entry) -> None:
    """Take an allowance back."""
    session.run(session.app.webhooks.disallow(entry))
    _done(session, "disallowed", entry)


def _done(session: Session, what: str, whom: UUID | str) -> None:
    if session.screen.as_json:
        session.screen.json({what: str(whom)})
    else:
        session.screen.say(f"{what} {whom}")
