"""The operations of an `App`, through a server: commands don't see the difference.

Each noun has the verbs that commands use, with the signatures and results of `rota.operations`, in terms
of the client. What a server doesn't offer is refused with a message that names the database.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NoReturn

from rota.cli.remote.access import RemoteInstallation
from rota.cli.remote.jobs import (
    RemoteDead,
    RemoteHistory,
    RemoteJobs,
    RemoteQueues,
    RemoteRegistry,
    RemoteStatistics,
)
from rota.cli.remote.noun import needs_database
from rota.cli.remote.runs import RemoteRuns, RemoteSignals, RemoteWorkflows
from rota.cli.remote.schedules import RemoteSchedules
from rota.cli.remote.services import (
    RemoteAlerts,
    RemoteBulk,
    RemoteEndpoints,
    RemoteEvents,
    RemoteMaintenance,
    RemoteNodes,
    RemotePools,
    RemoteSinks,
    RemoteTriggers,
    RemoteWebhooks,
)
from rota.client import AsyncClient
from rota.config import Settings
from rota.core.administration import Diagnosis
from rota.core.payloads import Limits
from rota.core.signature import Signature
from rota.errors import ConfigError
from rota.handle import JobHandle


class RemoteApp:
    """An app whose operations are those of a server. It has no tasks of its own."""

    def __init__(self, client: AsyncClient, namespace: str | None) -> None:
        self.client = client
        # Only the namespace is used: without one, it is that of the token.
        self.settings = Settings(namespace=namespace or "default")
        self.rota = self
        self.limits = Limits(self.settings.max_payload_bytes, self.settings.max_payload_depth)
        self.namespace = self.settings.namespace
        self.tasks: Mapping[str, Any] = {}
        self.jobs = RemoteJobs(client)
        self.dead = RemoteDead(client)
        self.history = RemoteHistory(client)
        self.registry = RemoteRegistry(client)
        self.statistics = RemoteStatistics(client)
        self.queues = RemoteQueues(client)
        self.nodes = RemoteNodes(client)
        self.pools = RemotePools(client)
        self.alerts = RemoteAlerts(client)
        self.maintenance = RemoteMaintenance(client)
        self.bulk = RemoteBulk(client)
        self.schedules = RemoteSchedules(client)
        self.events = RemoteEvents(client)
        self.webhooks = RemoteWebhooks(client, self.jobs)
        self.workflows = RemoteWorkflows(client)
        self.runs = RemoteRuns(client)
        self.signals_ = RemoteSignals(client)
        self.endpoints = RemoteEndpoints(client)
        self.triggers = RemoteTriggers(client)
        self.sinks = RemoteSinks(client)
        self.installation = RemoteInstallation(client, self.now)
        self.connector = RemoteConnector(client)

    @property
    def signals(self) -> RemoteSignals:
        return self.signals_

    def __getattr__(self, name: str) -> NoReturn:
        needs_database(name)

    async def now(self) -> datetime:
        """Return the time of the server's database."""
        me = await self.client.me()
        if me.now is None:
            raise ConfigError("this server is older than the command: it doesn't tell its time")
        return me.now

    async def submit(self, task: str, payload: Mapping[str, Any], **options: Any) -> JobHandle[Any]:
        options["tags"] = [*options.get("tags", ())]
        accepted = await self.client.jobs.submit(task, payload, **options)
        return JobHandle(
            self.jobs, accepted.id, accepted.existed, warnings=tuple(accepted.warnings)
        )

    async def signatures(self) -> RemoteSignatures:
        return RemoteSignatures(self.client)

    async def close(self) -> None:
        await self.client.close()


class RemoteConnector:
    """The state of a server's database, as the server reports it."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def diagnose(self) -> Diagnosis:
        return await self._client.doctor()


class RemoteSignatures:
    """The signatures of tasks, for `rota workflows apply`."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def of(self, namespace: str, task: str) -> list[Signature] | None:
        [found] = await self._client.workflows.signatures([task])
        return None if found.signatures is None else list(found.signatures)
