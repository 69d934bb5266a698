"""Delivers events: the jobs of the built-in task `rota.webhook`.

Protocol. The database hands an event over in the transaction that records it: one job per webhook that
subscribes to it, with the event inside. A delivery that isn't answered with 2xx is a failed attempt,
tried again by the engine with growing pauses and dead-lettered in the end. A receiver may see a delivery
twice, and recognises it by the `Rota-Delivery` header. 410 pauses the webhook, and so do many failures
in a row. The address is checked anew for each attempt.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from rota.app import App
from rota.config import Settings, check_smtp_url
from rota.context import Context
from rota.errors import ConfigError, Fatal, JobError
from rota.lib.net.guard import ForbiddenAddress, UnknownHost, check_url
from rota.lib.net.post import Answer, RequestFailed, post
from rota.lib.net.smtp import MailFailed, send_mail
from rota.lib.reloading import read_secret
from rota.model import Retry
from rota.operations.notices import body_of, mail, recipient_of
from rota.operations.webhooks import WEBHOOK_QUEUE, WEBHOOK_TASK
from rota.signing import SIGNATURE_HEADER, sign
from rota.store.webhooks import Delivery, WebhookStore

_RETRY = Retry(max_attempts=12, base=5.0, factor=3.0, cap=3600.0)
_LONGEST_WAIT = 3600.0  # whatever Retry-After says
_GONE = 410


class WebhookFailed(JobError):
    """A delivery was not answered with success."""


def enable_webhooks(app: App) -> None:
    """Let this app's workers deliver events. Nodes do it by themselves; twice changes nothing."""
    if WEBHOOK_TASK in app.tasks:
        return

    async def deliver(webhook: UUID, event: dict[str, Any], ctx: Context) -> str:
        store = WebhookStore((await app.store()).database)
        delivery = await store.find_delivery(app.settings.namespace, webhook)
        if delivery is None:
            return "the webhook has been removed"
        if delivery.paused:
            return "the webhook is paused"
        if delivery.format == "email":
            return await _mail(app, store, webhook, delivery, event, ctx)
        try:
            answer = await _send(delivery, event, ctx)
        except (RequestFailed, ForbiddenAddress) as error:
            await store.note_failure(webhook, str(error))
            # A name may be found by DNS a minute later; an address that is forbidden stays so.
            final = isinstance(error, ForbiddenAddress) and not isinstance(error, UnknownHost)
            kind = Fatal if final else WebhookFailed
            raise kind(str(error)) from None
        return await _judge(store, webhook, answer, delivery.now)

    app.task(
        name=WEBHOOK_TASK, queue=WEBHOOK_QUEUE, retry=_RETRY, timeout=30, expected=20, runner="loop"
    )(deliver)


async def _send(delivery: Delivery, event: dict[str, Any], ctx: Context) -> Answer:
    target = await check_url(delivery.url, delivery.allowed)
    body = body_of(delivery.format, event, delivery.secret)
    headers = {
        "Content-Type": "application/json",
        "Rota-Event": str(event.get("kind")),
        "Rota-Delivery": str(ctx.job.id),
        "Rota-Attempt": str(ctx.attempt),
    }
    if delivery.format != "pagerduty":  # whose secret is in the body, and signs nothing
        signature = sign(delivery.secret, body, int(delivery.now.timestamp()))
        headers[SIGNATURE_HEADER] = signature
    return await post(target, body, headers)


async def _mail(
    app: App, store: WebhookStore, webhook: UUID, delivery: Delivery, event: dict[str, Any],
    ctx: Context,
) -> str:  # fmt: skip
    settings = app.settings
    try:
        server = _mail_server(settings)
    except ConfigError as error:
        raise WebhookFailed(f"this worker can't send e-mail: {error}") from None
    recipient = recipient_of(delivery.url)
    try:
        await send_mail(server, mail(event, settings.smtp_from, recipient, ctx.job.id))
    except MailFailed as error:
        await store.note_failure(webhook, str(error))
        raise (Fatal if error.final else WebhookFailed)(str(error)) from None
    await store.note_success(webhook)
    return f"sent to {recipient}"


def _mail_server(settings: Settings) -> str:
    if (file := settings.smtp_url_file) is not None:
        return check_smtp_url(read_secret(file, "smtp_url_file"), f"what smtp_url_file {file} has")
    if not settings.smtp_url:
        raise ConfigError("set ROTA_SMTP_URL (or ROTA_SMTP_URL_FILE) and ROTA_SMTP_FROM")
    return settings.smtp_url


async def _judge(store: WebhookStore, webhook: UUID, answer: Answer, now: datetime) -> str:
    if 200 <= answer.status < 300:
        await store.note_success(webhook)
        return f"answered with {answer.status}"
    problem = f"answered with {answer.status}"
    if 300 <= answer.status < 400:
        problem += ": redirects are not followed"
    await store.note_failure(webhook, problem, pause=answer.status == _GONE)
    if answer.status == _GONE:
        return "it is gone: the webhook is paused"
    asked = answer.asked_to_wait(now)
    if answer.status in (429, 503) and asked is not None:
        raise Retry.after(min(asked, _LONGEST_WAIT), problem)
    raise WebhookFailed(problem)
