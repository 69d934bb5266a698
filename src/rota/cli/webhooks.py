"""`rota webhooks`: where events are sent, and which hosts requests may go to."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

from rota.cli.jobs import database_now, parse_id
from rota.cli.options import Yes
from rota.cli.output import plain, state, table
from rota.cli.session import Session, callback, command
from rota.cli.times import relative
from rota.errors import RotaError
from rota.model import Job
from rota.operations.webhooks import KINDS, Format

group = typer.Typer(help="Manage webhooks, which send events to other programs.")
_Id = Annotated[
    UUID,
    typer.Argument(metavar="ID", parser=parse_id, show_default=False, help="Id of the webhook."),
]
_Entry = Annotated[
    str, typer.Argument(metavar="HOST", help="A host, an address, or a network like 10.0.0.0/8.")
]


@callback(group)
def root(session: Session, context: typer.Context) -> None:
    session.screen.help(context)


@command(group, "add")
def add(
    session: Session,
    url: Annotated[str, typer.Argument(metavar="URL", help="An http or https URL.")],
    kind: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND",
            help=f"Kind of events to send: {', '.join(KINDS)}. Repeatable. (default: all)",
        ),
    ] = None,
    form: Annotated[
        Format,
        typer.Option(
            "--format", help="Format of deliveries: the event itself, or a sentence for Slack."
        ),
    ] = "json",
) -> None:
    """Add a webhook: send events to a URL from now on."""
    new = session.run(session.app.webhooks.add(url, kinds=kind or (), form=form))
    session.screen.answer(new, f"added {new.id}", f"secret {new.secret}")
    session.screen.note("Deliveries are signed with this secret. It is not shown again.")


@command(group, "list")
def list_webhooks(session: Session) -> None:
    """List webhooks, and the hosts that are allowed besides public addresses."""
    screen = session.screen
    webhooks = session.run(session.app.webhooks.list())
    allowed = session.run(session.app.webhooks.allowed())
    if screen.structured:
        screen.document({"webhooks": webhooks, "allowed": allowed})
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
def remove(session: Session, webhook_id: _Id, yes: Yes = False) -> None:
    """Remove a webhook."""
    session.confirm(f"Remove webhook {webhook_id}?", yes)
    session.run(session.app.webhooks.remove(webhook_id))
    _done(session, "removed", webhook_id)


@command(group, "pause")
def pause(session: Session, webhook_id: _Id) -> None:
    """Pause a webhook: events that happen during the pause are not sent later."""
    session.run(session.app.webhooks.pause(webhook_id))
    _done(session, "paused", webhook_id)


@command(group, "resume")
def resume(session: Session, webhook_id: _Id) -> None:
    """Resume a webhook."""
    session.run(session.app.webhooks.resume(webhook_id))
    _done(session, "resumed", webhook_id)


@command(group, "test")
def send_test(
    session: Session,
    webhook_id: _Id,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds to wait for the delivery.")] = 30,
) -> None:
    """Send a test event, and wait for its delivery."""
    job = session.run(_deliver(session, webhook_id, timeout))
    if job.state != "succeeded":
        raise RotaError(f"not delivered: {job.error.message if job.error else job.state}")
    session.screen.answer({"job": job.id, "result": job.result}, f"delivered: {job.result}")


async def _deliver(session: Session, webhook_id: UUID, timeout: float) -> Job:
    handle = await session.app.webhooks.test(webhook_id)
    try:
        return await handle.wait(timeout)
    except TimeoutError:
        raise RotaError(
            f"job {handle.id} has not been run within {timeout:g} s: is a worker alive that serves "
            "the queue webhooks? `rota jobs explain` shows the reason"
        ) from None


@command(group, "allow")
def allow(session: Session, entry: _Entry) -> None:
    """Allow requests of this namespace to a host that isn't public."""
    session.run(session.app.webhooks.allow(entry))
    _done(session, "allowed", entry)


@command(group, "disallow")
def disallow(session: Session, entry: _Entry) -> None:
    """Withdraw the permission for a host."""
    session.run(session.app.webhooks.disallow(entry))
    _done(session, "disallowed", entry)


def _done(session: Session, what: str, whom: UUID | str) -> None:
    session.screen.answer({what: str(whom)}, f"{what} {whom}")
