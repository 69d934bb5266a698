"""`rota webhooks`: where events are sent, and which hosts requests may go to."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from rich.text import Text

from rota.cli.jobs import parse_id
from rota.cli.options import Yes, argument, option
from rota.cli.output import first_line, state
from rota.cli.session import Session, command, make_group
from rota.cli.times import relative
from rota.core.administration import Format, Webhook
from rota.errors import RotaError
from rota.model import Job
from rota.operations.webhooks import KINDS

group = make_group("Manage webhooks, which send events to other programs.")
_Id = Annotated[UUID, argument("ID", "Id of the webhook.", parser=parse_id, show_default=False)]
_Entry = Annotated[str, argument("HOST", "A host, an address, or a network like 10.0.0.0/8.")]


@command(group, "add")
def add(
    session: Session,
    url: Annotated[str, argument("URL", "An http or https URL.")],
    kind: Annotated[
        list[str] | None,
        option(f"Kind of events to send: {', '.join(KINDS)}. Repeatable. (default: all)",
               metavar="KIND"),
    ] = None,
    form: Annotated[
        Format,
        option("Format of deliveries: the event itself, or what a service understands.", "--format"),
    ] = "json",
) -> None:  # fmt: skip
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
    screen.listing(
        webhooks, "No webhooks.",
        ("id", "url", "kinds", "format", "state", "delivered", "error"),
        (
            (
                str(webhook.id), webhook.url, ", ".join(webhook.kinds) or "all", webhook.format,
                _state(webhook),
                relative(webhook.delivered_at, session.now) if webhook.delivered_at else "never",
                webhook.last_error or "",
            )
            for webhook in webhooks
        ),
        whole=["id"],
    )  # fmt: skip
    if allowed:
        screen.note(f"Allowed besides public addresses: {', '.join(allowed)}")


def _state(webhook: Webhook) -> Text:
    if webhook.paused_at:
        return state("paused")
    return state(f"{webhook.failures} failures" if webhook.failures else "live")


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
    timeout: Annotated[float, option("Seconds to wait for the delivery.", min=1)] = 30,
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


@command(group, "deliveries")
def deliveries(session: Session, webhook_id: _Id) -> None:
    """List the deliveries of the last week to a webhook, newest first."""
    found = session.run(session.app.webhooks.deliveries(webhook_id))
    session.screen.listing(
        found, "No deliveries in the last week.", ("job", "state", "attempt", "when", "error"),
        (
            (str(job.id), state(job.state), f"{job.attempt}/{job.max_attempts}",
             relative(job.created_at, session.now), first_line(job.error_message or ""))
            for job in found
        ),
        right=["when"], whole=["job"],
    )  # fmt: skip


@command(group, "redeliver")
def redeliver(
    session: Session,
    job: Annotated[UUID, argument("JOB", "Id of the delivery's job.", parser=parse_id)],
) -> None:
    """Send the event of a delivery once more, as a new job."""
    handle = session.run(session.app.webhooks.redeliver(job))
    session.screen.answer({"id": handle.id}, f"sent again by job {handle.id}")
