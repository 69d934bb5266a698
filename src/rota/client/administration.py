"""`client.endpoints`, `triggers`, `webhooks`, `tokens`, `users`, `roles`, `sessions` and others."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote
from uuid import UUID

from rota.client import wire
from rota.client.connections import C, Resource, call, iteration
from rota.client.exchanges import Exchange, Page, Pages, fetch, order, send
from rota.core.administration import (
    AddedUser,
    AuditEntry,
    CreatedToken,
    EndpointStatus,
    Format,
    Limits,
    Namespace,
    NewEndpoint,
    NewWebhook,
    OpenSession,
    RoleInfo,
    SinkStatus,
    TokenInfo,
    TriggerStatus,
    Webhook,
)
from rota.model import Accepted, JobSummary


def _path(*parts: Any) -> str:
    return "/v1/" + "/".join(quote(str(part), safe="") for part in parts)


Deliveries = list[JobSummary]


class Endpoints(Resource[C]):
    """`client.endpoints`: tasks whose jobs are pushed to a URL."""

    @call
    def list(self) -> Exchange[Sequence[EndpointStatus]]:
        """List the endpoints of the namespace, without their secrets."""
        return (yield from fetch("/v1/endpoints", wire.EndpointList)).items

    @call
    def get(self, name: str) -> Exchange[EndpointStatus]:
        """Return an endpoint, without its secret."""
        return fetch(_path("endpoints", name), EndpointStatus)

    @call
    def add(self, /, name: str, url: str, **settings: Any) -> Exchange[NewEndpoint]:
        """Add an endpoint, and return it with its secret. It is not repeated when a response is lost."""
        return send("POST", "/v1/endpoints", NewEndpoint, {"name": name, "url": url, **settings})

    @call
    def change(self, /, name: str, **changes: Any) -> Exchange[EndpointStatus]:
        """Change the given settings of an endpoint, within seconds."""
        return send("PATCH", _path("endpoints", name), EndpointStatus, changes, repeatable=True)

    @call
    def remove(self, name: str) -> Exchange[EndpointStatus]:
        """Remove an endpoint. Its jobs stay in their queue."""
        return send("DELETE", _path("endpoints", name), EndpointStatus)


class Triggers(Resource[C]):
    """`client.triggers`: messages of a broker that start jobs."""

    @call
    def list(self) -> Exchange[wire.TriggerList]:
        """List the triggers, with their lag and what became of their messages."""
        return fetch("/v1/triggers", wire.TriggerList)

    @call
    def get(self, name: str) -> Exchange[TriggerStatus]:
        """Return a trigger."""
        return fetch(_path("triggers", name), TriggerStatus)

    @call
    def pause(self, name: str) -> Exchange[TriggerStatus]:
        """Pause a trigger: its messages wait in the broker."""
        return send("POST", _path("triggers", name, "pause"), TriggerStatus, repeatable=True)

    @call
    def resume(self, name: str) -> Exchange[TriggerStatus]:
        """Resume a trigger where it was paused."""
        return send("POST", _path("triggers", name, "resume"), TriggerStatus, repeatable=True)

    @call
    def rewind(self, name: str, to: str | None = None) -> Exchange[TriggerStatus]:
        """Set a trigger back: messages after a position become jobs again; by default all of them. It is
        not repeated when a response is lost."""
        return send("POST", _path("triggers", name, "rewind"), TriggerStatus, {"to": to})

    @call
    def remove(self, name: str) -> Exchange[TriggerStatus]:
        """Remove a trigger and its position."""
        return send("DELETE", _path("triggers", name), TriggerStatus)


class Sinks(Resource[C]):
    """`client.sinks`: topics of brokers that events go to."""

    @call
    def list(self) -> Exchange[wire.SinkList]:
        """List the sinks, with how far they were sent to."""
        return fetch("/v1/sinks", wire.SinkList)

    @call
    def get(self, name: str) -> Exchange[SinkStatus]:
        """Return a sink."""
        return fetch(_path("sinks", name), SinkStatus)

    @call
    def pause(self, name: str) -> Exchange[SinkStatus]:
        """Pause a sink: events wait, for as long as events are kept."""
        return send("POST", _path("sinks", name, "pause"), SinkStatus, repeatable=True)

    @call
    def resume(self, name: str) -> Exchange[SinkStatus]:
        """Resume a sink where it was paused."""
        return send("POST", _path("sinks", name, "resume"), SinkStatus, repeatable=True)

    @call
    def rewind(self, name: str, to: str | None = None) -> Exchange[SinkStatus]:
        """Send the events after a position again; by default all that are kept. It is not repeated
        when a response is lost."""
        return send("POST", _path("sinks", name, "rewind"), SinkStatus, {"to": to})

    @call
    def remove(self, name: str) -> Exchange[SinkStatus]:
        """Remove a sink and its position."""
        return send("DELETE", _path("sinks", name), SinkStatus)


class Webhooks(Resource[C]):
    """`client.webhooks`: where events are sent."""

    @call
    def list(self) -> Exchange[wire.WebhookList]:
        """List webhooks, and the hosts that are allowed besides public addresses."""
        return fetch("/v1/webhooks", wire.WebhookList)

    @call
    def get(self, id: UUID | str) -> Exchange[Webhook]:
        """Return a webhook, without its secret."""
        return fetch(_path("webhooks", id), Webhook)

    @call
    def add(
        self, url: str, *, kinds: Sequence[str] = (), form: Format = "json"
    ) -> Exchange[NewWebhook]:
        """Add a webhook, and return it with its secret. It is not repeated when a response is lost."""
        body = {"url": url, "kinds": kinds, "format": form}
        return send("POST", "/v1/webhooks", NewWebhook, body)

    @call
    def pause(self, id: UUID | str) -> Exchange[Webhook]:
        """Pause a webhook: events that happen during the pause are not sent later."""
        return send("POST", _path("webhooks", id, "pause"), Webhook, repeatable=True)

    @call
    def resume(self, id: UUID | str) -> Exchange[Webhook]:
        """Resume a webhook."""
        return send("POST", _path("webhooks", id, "resume"), Webhook, repeatable=True)

    @call
    def test(self, id: UUID | str) -> Exchange[Accepted]:
        """Send a test event, as a job."""
        return send("POST", _path("webhooks", id, "test"), Accepted)

    @call
    def deliveries(self, id: UUID | str) -> Exchange[Deliveries]:
        """List the deliveries of the last week to a webhook, newest first, as the jobs that they are."""
        return fetch(_path("webhooks", id, "deliveries"), Deliveries)

    @call
    def redeliver(self, job_id: UUID | str) -> Exchange[Accepted]:
        """Send the event of a delivery once more, as a new job."""
        return send("POST", _path("webhooks", "deliveries", job_id, "redeliver"), Accepted)

    @call
    def remove(self, id: UUID | str) -> Exchange[Webhook]:
        """Remove a webhook."""
        return send("DELETE", _path("webhooks", id), Webhook)


class Tokens(Resource[C]):
    """`client.tokens`"""

    @iteration
    def list(
        self, *, revoked: bool = False, everywhere: bool = False, limit: int | None = None,
        page_size: int = 100,
    ) -> Pages[TokenInfo]:  # fmt: skip
        """List tokens, newest first, without their secrets. `everywhere`: of all namespaces."""
        query = {"revoked": revoked, "everywhere": everywhere}
        return Pages("/v1/tokens", Page[TokenInfo], query, limit, page_size)

    @call
    def create(
        self, name: str, *, role: str = "viewer", scopes: Sequence[str] = (),
        tasks: Sequence[str] = (), expires_at: datetime | None = None, everywhere: bool = False,
        submits_per_second: float | None = None, queues: Sequence[str] = (),
    ) -> Exchange[CreatedToken]:  # fmt: skip
        """Create a token that can do no more than this client's. It is not repeated when a response is
        lost: revoke what you don't know."""
        body = {
            "name": name, "role": role, "scopes": scopes, "tasks": tasks,
            "expires_at": expires_at, "everywhere": everywhere,
            "submits_per_second": submits_per_second, "queues": queues,
        }  # fmt: skip
        return send("POST", "/v1/tokens", CreatedToken, body)

    @call
    def revoke(self, prefix: str, *, made: bool = False) -> Exchange[TokenInfo]:
        """Revoke a token, within five seconds on every server; `made`: also those made with it."""
        query = {"made": made}
        return send("DELETE", _path("tokens", prefix), TokenInfo, query=query, repeatable=True)


class Users(Resource[C]):
    """`client.users`: for an admin of all namespaces."""

    @call
    def list(self) -> Exchange[wire.UserList]:
        """List the users who may log in, and their roles by namespace."""
        return fetch("/v1/users", wire.UserList)

    @call
    def add(
        self, name: str, *, role: str = "viewer", everywhere: bool = False,
        password: str | None = None,
    ) -> Exchange[AddedUser]:  # fmt: skip
        """Add a user, or change the role or the password of one."""
        body = {"name": name, "role": role, "everywhere": everywhere, "password": password}
        return send("POST", "/v1/users", AddedUser, body, repeatable=True)

    @call
    def remove(self, name: str) -> Exchange[None]:
        """Remove a user, and end their sessions."""
        return order("DELETE", _path("users", name), repeatable=False)


class Roles(Resource[C]):
    """`client.roles`: what tokens and users may do."""

    @call
    def list(self) -> Exchange[wire.RoleList]:
        """List the roles, and all permissions that a role can have."""
        return fetch("/v1/roles", wire.RoleList)

    @call
    def get(self, name: str) -> Exchange[RoleInfo]:
        """Return a role."""
        return fetch(_path("roles", name), RoleInfo)

    @call
    def set(
        self, name: str, *, permissions: Sequence[str], namespaces: Sequence[str] = (),
        tasks: Sequence[str] = (), queues: Sequence[str] = (), description: str = "",
    ) -> Exchange[RoleInfo]:  # fmt: skip
        """Define a role, or replace its definition: for an admin of all namespaces."""
        body = {
            "permissions": permissions, "namespaces": namespaces, "tasks": tasks, "queues": queues,
            "description": description,
        }  # fmt: skip
        return send("PUT", _path("roles", name), RoleInfo, body, repeatable=True)

    @call
    def delete(self, name: str) -> Exchange[RoleInfo]:
        """Delete a role that nobody has any more: for an admin of all namespaces."""
        return send("DELETE", _path("roles", name), RoleInfo)


class Sessions(Resource[C]):
    """`client.sessions`: of browsers that are logged in."""

    @iteration
    def list(self, *, limit: int | None = None, page_size: int = 100) -> Pages[OpenSession]:
        """List sessions, newest first."""
        return Pages("/v1/sessions", Page[OpenSession], {}, limit, page_size)

    @call
    def end(self, id: UUID | str) -> Exchange[None]:
        """End a session, within five seconds on every server."""
        return order("DELETE", _path("sessions", id), repeatable=False)

    @call
    def end_links(self) -> Exchange[wire.EndedSessions]:
        """End all sessions that were begun with a login link: for an admin of all namespaces."""
        return send("POST", "/v1/sessions:end-links", wire.EndedSessions, repeatable=True)


class Namespaces(Resource[C]):
    """`client.namespaces`"""

    @call
    def list(self) -> Exchange[wire.NamespaceList]:
        """List the namespaces in which the token has a role, and name those that are encrypted."""
        return fetch("/v1/namespaces", wire.NamespaceList)

    @call
    def get(self, name: str) -> Exchange[Namespace]:
        """Return a namespace and its limits."""
        return fetch(_path("namespaces", name), Namespace)

    @call
    def set_limits(self, name: str, limits: Limits) -> Exchange[Namespace]:
        """Set all limits of a namespace at once. They hold within five seconds."""
        return send("PUT", _path("namespaces", name), Namespace, limits, repeatable=True)

    @call
    def remove_limits(self, name: str) -> Exchange[Namespace]:
        """Remove the limits of a namespace. Its jobs stay."""
        return send("DELETE", _path("namespaces", name), Namespace)

    @call
    def set_encrypted(self, name: str, encrypted: bool) -> Exchange[None]:
        """Encrypt what is submitted to a namespace from now on, or stop doing so."""
        return order("PUT", _path("namespaces", name, "encryption"), {"encrypted": encrypted})


class Audit(Resource[C]):
    """`client.audit`: who changed what, when and from where."""

    @iteration
    def list(
        self, *, action: str | None = None, actor: str | None = None, subject: str | None = None,
        interface: str | None = None, since: datetime | None = None,
        until: datetime | None = None, before: int | None = None, everywhere: bool = False,
        limit: int | None = None, page_size: int = 100,
    ) -> Pages[AuditEntry]:  # fmt: skip
        """List changes, newest first. `everywhere`: of all namespaces."""
        query = {
            "action": action, "actor": actor, "subject": subject, "interface": interface,
            "since": since, "until": until, "before": before, "everywhere": everywhere,
        }  # fmt: skip
        return Pages("/v1/audit", Page[AuditEntry], query, limit, page_size)
