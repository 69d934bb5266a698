"""`app.webhooks`: who hears of events."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from uuid import UUID

import msgspec

from rota.errors import ConfigError, NotFound
from rota.handle import JobHandle
from rota.lib.ids import new_id
from rota.lib.net.guard import ForbiddenAddress, parse_url
from rota.store.changes import changing
from rota.store.webhooks import Webhook, WebhookStore

if TYPE_CHECKING:
    from rota.operations.rota import Rota

KINDS = ("failed", "dead_lettered", "timed_out", "slow", "slower", "late", "deadline_missed",
         "queue_lag", "missed", "overran", "set_aside", "node_dead")  # fmt: skip
Format: TypeAlias = Literal["json", "slack"]
Names: TypeAlias = list[str]  # inside Webhooks, `list` is its method

WEBHOOK_TASK = "rota.webhook"
WEBHOOK_QUEUE = "webhooks"


class NewWebhook(msgspec.Struct, frozen=True):
    """`secret` is shown here and nowhere else."""

    id: UUID
    secret: str


class Webhooks:
    def __init__(self, rota: Rota) -> None:
        self._rota = rota

    @property
    def _namespace(self) -> str:
        return self._rota.namespace

    async def _store(self) -> WebhookStore:
        return WebhookStore((await self._rota.store()).database)

    async def add(
        self,
        url: str,
        *,
        kinds: Sequence[str] = (),
        form: Format = "json",
        secret: str | None = None,
    ) -> NewWebhook:
        """Send events there from now on.

        Args:
            url: of http or https. Whether its address may be gone to is judged at each delivery.
            kinds: which events; all by default.
            form: ``json``, the event itself; ``slack``, a sentence in ``{"text": ...}``.
            secret: what deliveries are signed with; made up if not given.
        """
        try:
            parse_url(url)
        except ForbiddenAddress as error:
            raise ConfigError(str(error)) from None
        for kind in kinds:
            if kind not in KINDS:
                raise ConfigError(f"kind {kind!r} is not one of: {', '.join(KINDS)}")
        if form not in ("json", "slack"):
            raise ConfigError(f"format {form!r} is not one of: json, slack")
        if secret is not None and not 16 <= len(secret) <= 200:
            raise ConfigError("a secret has 16 to 200 characters")
        new = NewWebhook(new_id(), secret or secrets.token_urlsafe(32))
        store = await self._store()
        after = {"url": url, "kinds": list(kinds), "format": form}
        async with changing(store.database, "create", f"webhook {new.id}", after=after):
            if not await store.add(new.id, self._namespace, url, new.secret, kinds, form):
                raise ConfigError(f"there is a webhook to {url} already: `rota webhooks list`")
        return new

    async def list(self) -> list[Webhook]:
        return await (await self._store()).list(self._namespace)

    async def remove(self, id: UUID) -> None:
        store = await self._store()
        async with changing(store.database, "remove", f"webhook {id}") as change:
            change.before = next((each for each in await self.list() if each.id == id), None)
            _found(await store.remove(self._namespace, id), id)

    async def pause(self, id: UUID) -> None:
        """No event is handed over to it until it is resumed; those of meanwhile are not made up for."""
        await self._set_paused(id, "pause", True)

    async def resume(self, id: UUID) -> None:
        await self._set_paused(id, "resume", False)

    async def _set_paused(self, id: UUID, action: str, paused: bool) -> None:
        store = await self._store()
        after = {"paused": paused}
        async with changing(store.database, action, f"webhook {id}", after=after):
            _found(await store.pause(self._namespace, id, paused), id)

    async def test(self, id: UUID) -> JobHandle[Any]:
        """Send a test event there, as a job like all deliveries."""
        _found(any(webhook.id == id for webhook in await self.list()), id)
        event = {"kind": "test", "namespace": self._namespace, "task": "", "detail": {}}
        store = await self._store()
        async with changing(store.database, "test", f"webhook {id}") as change:
            handle = await self._rota.submissions.submit_own(
                WEBHOOK_TASK, {"webhook": id, "event": event}, queue=WEBHOOK_QUEUE, max_attempts=1,
                connection=change.connection,
            )  # fmt: skip
            change.after = {"job": handle.id}
        return handle

    async def allow(self, entry: str) -> None:
        """Let requests of this namespace go to a host, address or network that isn't public."""
        if "/" in entry:
            try:
                ip_network(entry, strict=False)
            except ValueError:
                raise ConfigError(f"{entry!r} is not a network like 10.0.0.0/8") from None
        elif not entry or any(c.isspace() or not c.isprintable() for c in entry):
            raise ConfigError(f"{entry!r} is neither a host nor an address nor a network")
        store = await self._store()
        async with changing(store.database, "allow", f"host {entry.lower()}"):
            await store.allow(self._namespace, entry.lower())

    async def disallow(self, entry: str) -> None:
        store = await self._store()
        async with changing(store.database, "disallow", f"host {entry.lower()}"):
            if not await store.disallow(self._namespace, entry.lower()):
                raise NotFound(f"{entry!r} is not allowed in namespace {self._namespace!r}")

    async def allowed(self) -> Names:
        return [*await (await self._store()).allowed(self._namespace)]


def _found(there: bool, id: UUID) -> None:
    if not there:
        raise NotFound(f"there is no webhook {id}: `rota webhooks list`")
