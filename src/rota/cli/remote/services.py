"""Nodes, events, alerts, bulk actions, endpoints and webhooks of a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from rota.cli.remote.jobs import RemoteJobs
from rota.cli.remote.noun import PAGE, Noun, collect, needs_database
from rota.client import AsyncClient
from rota.core.administration import (
    EndpointStatus,
    NewEndpoint,
    NewWebhook,
    SinkStatus,
    TriggerStatus,
    Webhook,
)
from rota.handle import JobHandle
from rota.model import (
    BulkChange,
    Event,
    NodeStatus,
    ShardStatus,
    Takeover,
)

Nodes = Sequence[NodeStatus]
Events = list[Event]
Webhooks = Sequence[Webhook]


class RemoteNodes(Noun):
    async def list(self, *, ended: bool = False) -> Nodes:
        return (await self._client.nodes.list(ended=ended)).items

    async def shards(self) -> Sequence[ShardStatus]:
        return (await self._client.nodes.shards()).shards

    async def takeovers(self, within: float = 86_400) -> Sequence[Takeover]:
        return (await self._client.nodes.shards(hours=within / 3600)).takeovers


class RemotePools(Noun):
    """All verbs are those of the client."""


class RemoteEvents(Noun):
    async def list(self, *, kind: str | None = None, limit: int = 100) -> Events:
        return await collect(self._client.events.list(kind=kind, limit=limit, page_size=PAGE))


class RemoteEndpoints(Noun):
    async def add(self, name: str, url: str, **settings: Any) -> NewEndpoint:
        return await self._client.endpoints.add(name, url, **msgspec.to_builtins(settings))

    async def change(self, name: str, **changes: Any) -> EndpointStatus:
        return await self._client.endpoints.change(name, **msgspec.to_builtins(changes))


class RemoteTriggers(Noun):
    async def list(self) -> Sequence[TriggerStatus]:
        return (await self._client.triggers.list()).items


class RemoteSinks(Noun):
    async def list(self) -> Sequence[SinkStatus]:
        return (await self._client.sinks.list()).items


class RemoteWebhooks(Noun):
    def __init__(self, client: AsyncClient, jobs: RemoteJobs) -> None:
        super().__init__(client)
        self._jobs = jobs

    async def add(self, url: str, *, kinds: Sequence[str] = (), form: Any = "json") -> NewWebhook:
        return await self._client.webhooks.add(url, kinds=kinds, form=form)

    async def list(self) -> Webhooks:
        return (await self._client.webhooks.list()).items

    async def allowed(self) -> Sequence[str]:
        return (await self._client.webhooks.list()).allowed

    async def test(self, id: UUID) -> JobHandle[Any]:
        return JobHandle(self._jobs, (await self._client.webhooks.test(id)).id)

    async def redeliver(self, job_id: UUID) -> JobHandle[Any]:
        return JobHandle(self._jobs, (await self._client.webhooks.redeliver(job_id)).id)

    async def allow(self, entry: str) -> None:
        # Whoever has a token must not be able to let Rota send requests into the inner network.
        needs_database("webhooks allow")

    async def disallow(self, entry: str) -> None:
        needs_database("webhooks disallow")


class RemoteMaintenance(Noun):
    """All verbs are those of the client."""


class RemoteAlerts(Noun):
    """All verbs are those of the client."""


class RemoteBulk(Noun):
    async def list(self, limit: int = 20) -> Sequence[BulkChange]:
        return (await self._client.bulk.list())[:limit]
