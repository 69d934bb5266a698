"""Operations on webhooks, and on the hosts that requests of a namespace may go to."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Sequence
from datetime import timedelta
from ipaddress import ip_network
from typing import Any, Literal, TypeAlias, get_args
from uuid import UUID

from rota.core.administration import Format, NewWebhook, Webhook
from rota.errors import ConfigError, Conflict, NotFound
from rota.handle import JobHandle
from rota.lib.ids import new_id
from rota.lib.net.guard import ForbiddenAddress, UnknownHost, check_url, parse_url
from rota.model import JobSummary
from rota.operations.base import Operations
from rota.operations.notices import check_target
from rota.store.search import JobFilter
from rota.store.webhooks import WebhookStore

Kind: TypeAlias = Literal[
    "failed", "dead_lettered", "timed_out", "slow", "slower", "late", "deadline_missed",
    "queue_lag", "queue_full", "queue_open", "missed", "overran", "set_aside", "node_dead",
    "task_unknown", "run_failed", "run_late", "run_parked",
]  # fmt: skip
KINDS: tuple[str, ...] = get_args(Kind)
Names: TypeAlias = list[str]  # inside Webhooks, `list` is its method

_RESOLVE = 2.0  # seconds that a name may take to be resolved when a webhook is added
_DELIVERIES = timedelta(days=7)
_PATIENCE_MS = 2_000
WEBHOOK_TASK = "rota.webhook"
WEBHOOK_QUEUE = "webhooks"


class Webhooks(Operations):
    """`app.webhooks`"""

    async def _store(self) -> WebhookStore:
        return WebhookStore(await self._database())

    async def add(
        self,
        url: str,
        *,
        kinds: Sequence[str] = (),
        form: Format = "json",
        secret: str | None = None,
    ) -> NewWebhook:
        """Send events to a URL from now on.

        Args:
            url: an http or https URL. Its address is checked here and at every delivery.
            kinds: the kinds of events; all by default.
            form: ``json``, the event itself; ``slack``, a sentence in ``{"text": ...}``;
                ``pagerduty``, ``teams`` and ``email`` (to ``mailto:ops@example.com``): see the guide.
            secret: signs the deliveries; generated if not given. For PagerDuty, the integration key.
        """
        check_target(form, url, secret)
        if form != "email":
            await self._check_address(url)
        for kind in kinds:
            if kind not in KINDS:
                raise ConfigError(f"kind {kind!r} is not one of: {', '.join(KINDS)}", field="kinds")
        if secret is not None and not 16 <= len(secret) <= 200:
            raise ConfigError("a secret must have 16 to 200 characters", field="secret")
        id, secret = new_id(), secret or secrets.token_urlsafe(32)
        store = await self._store()
        after = {"url": url, "kinds": list(kinds), "format": form}
        async with self._changing("create", f"webhook {id}", after=after):
            if not await store.add(id, self._namespace, url, secret, kinds, form):
                raise Conflict(
                    f"there is a webhook to {url} already: `rota webhooks list`",
                    code="exists", field="url",
                )  # fmt: skip
            return NewWebhook(secret, await self.get(id))

    async def _check_address(self, url: str) -> None:
        """Refuse a URL to which nothing would be delivered. A name that can't be resolved now may be
        resolved at the delivery, which checks again."""
        try:
            parse_url(url)
            with contextlib.suppress(UnknownHost, TimeoutError):
                await asyncio.wait_for(check_url(url, await self.allowed()), _RESOLVE)
        except ForbiddenAddress as error:
            raise ConfigError(str(error), field="url") from None

    async def list(self) -> list[Webhook]:
        return await (await self._store()).list(self._namespace)

    async def get(self, id: UUID) -> Webhook:
        for webhook in await (await self._store()).list(self._namespace, id=id):
            return webhook
        raise NotFound(f"there is no webhook {id} in namespace {self._namespace!r}")

    async def remove(self, id: UUID) -> Webhook:
        """Remove a webhook, and return it as it was."""
        store = await self._store()
        async with self._changing("remove", f"webhook {id}") as change:
            change.before = before = await self.get(id)
            await store.remove(self._namespace, id)
        return before

    async def pause(self, id: UUID) -> Webhook:
        """Send nothing until it is resumed. Events that happen in between are not sent later."""
        return await self._set_paused(id, "pause", True)

    async def resume(self, id: UUID) -> Webhook:
        """Send events to a paused webhook again."""
        return await self._set_paused(id, "resume", False)

    async def _set_paused(self, id: UUID, action: str, paused: bool) -> Webhook:
        store = await self._store()
        after = {"paused": paused}
        async with self._changing(action, f"webhook {id}", after=after):
            await store.pause(self._namespace, id, paused)
            return await self.get(id)

    async def test(self, id: UUID) -> JobHandle[Any]:
        """Send a test event, as a job like all deliveries."""
        await self.get(id)
        event = {"kind": "test", "namespace": self._namespace, "task": "", "detail": {}}
        async with self._changing("test", f"webhook {id}") as change:
            handle = await self._rota.submissions.submit_own(
                WEBHOOK_TASK, {"webhook": id, "event": event}, queue=WEBHOOK_QUEUE, max_attempts=1,
                connection=change.connection,
            )  # fmt: skip
            change.after = {"job": handle.id}
        return handle

    async def deliveries(self, id: UUID, *, limit: int = 50) -> Sequence[JobSummary]:
        """List the jobs that deliver events to a webhook, newest first: those of the last week."""
        wanted = await self.deliveries_filter(id)
        return await self._rota.jobs.search(wanted, limit=limit, patience_ms=_PATIENCE_MS)

    async def deliveries_filter(self, id: UUID) -> JobFilter:
        """Return the filter that finds a webhook's deliveries of the last week."""
        await self.get(id)
        since = await (await self._rota.store()).now() - _DELIVERIES
        return JobFilter(task=WEBHOOK_TASK, text=str(id), since=since)

    async def redeliver(self, job_id: UUID) -> JobHandle[Any]:
        """Send the event of a delivery once more, as a new job. The receiver sees the same event id."""
        job = await self._rota.jobs.get(job_id)
        payload = job.payload if isinstance(job.payload, dict) else {}
        if job.task != WEBHOOK_TASK or "webhook" not in payload:
            raise Conflict(
                f"job {job_id} is no delivery of a webhook", code="no-delivery", subject=job_id
            )
        webhook = await self.get(UUID(str(payload["webhook"])))
        async with self._changing("redeliver", f"webhook {webhook.id}") as change:
            handle = await self._rota.submissions.submit_own(
                WEBHOOK_TASK, payload, queue=WEBHOOK_QUEUE, connection=change.connection
            )
            change.before, change.after = {"job": job_id}, {"job": handle.id}
        return handle

    async def allow(self, entry: str) -> None:
        """Allow requests of this namespace to a host, address or network that isn't public."""
        if "/" in entry:
            try:
                ip_network(entry, strict=False)
            except ValueError:
                raise ConfigError(
                    f"{entry!r} is not a network like 10.0.0.0/8", field="host"
                ) from None
        elif not entry or any(c.isspace() or not c.isprintable() for c in entry):
            raise ConfigError(
                f"{entry!r} is neither a host nor an address nor a network", field="host"
            )
        store = await self._store()
        async with self._changing("allow", f"host {entry.lower()}"):
            await store.allow(self._namespace, entry.lower())

    async def disallow(self, entry: str) -> None:
        """Withdraw what `allow` allowed."""
        store = await self._store()
        async with self._changing("disallow", f"host {entry.lower()}"):
            if not await store.disallow(self._namespace, entry.lower()):
                raise NotFound(f"{entry!r} is not allowed in namespace {self._namespace!r}")

    async def allowed(self) -> Names:
        """List the hosts, addresses and networks that are allowed besides public addresses."""
        return [*await (await self._store()).allowed(self._namespace)]
