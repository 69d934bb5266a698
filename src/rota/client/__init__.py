"""The client: the server's HTTP API from Python, without the database.

::

    from rota.client import Client

    with Client("https://rota.example.org", token) as client:
        job = client.jobs.submit("email_send", {"to": "ada@example.org"})
        print(client.jobs.wait(job.id).result)

`AsyncClient` has the same methods, to be awaited; lists and streams are iterated with ``async for``.

Each method is defined once, without I/O, as a generator of requests (`rota.client.exchanges`). A
blocking and an asynchronous connection (`rota.client.connections`) send them, with retries.

httpx is a plain dependency and no extra: the server's framework needs it in every installation anyway.
"""

from __future__ import annotations

import ssl
from typing import Any, Self

from rota.client import wire
from rota.client.administration import (
    Audit,
    Endpoints,
    Namespaces,
    Roles,
    Sessions,
    Sinks,
    Tokens,
    Triggers,
    Users,
    Webhooks,
)
from rota.client.bulk import JobsRefused
from rota.client.cluster import Alerts, Bulk, Dead, Events, Maintenance, Nodes, Pools, Queues, Tasks
from rota.client.connections import AsyncConnection, BlockingConnection, C, Resource, call
from rota.client.exchanges import Exchange, RetryPolicy, fetch
from rota.client.jobs import Jobs
from rota.client.runs import Runs, Signals, Workflows
from rota.client.schedules import Schedules
from rota.client.transport import http_settings
from rota.client.wire import (
    JobResult,
    LineRefused,
    ManySubmitted,
    NewJobDict,
    NodeList,
    ScheduleSettings,
)
from rota.core.administration import Diagnosis
from rota.model import Accepted, Cancelled

__all__ = [
    "Accepted",
    "AsyncClient",
    "Cancelled",
    "Client",
    "JobResult",
    "JobsRefused",
    "LineRefused",
    "ManySubmitted",
    "NewJobDict",
    "NodeList",
    "ScheduleSettings",
]


class _Client(Resource[C]):
    """The methods of both clients."""

    _connect: type[Any]

    def __init__(
        self, url: str | None = None, token: str | None = None, *, namespace: str | None = None,
        timeout: float = 60.0, silence: float = 20.0, verify: ssl.SSLContext | str | bool = True,
    ) -> None:  # fmt: skip
        """Open a client.

        Args:
            url: address of the server; by default ``ROTA_URL``, or else the loopback address.
            token: made by ``rota tokens create``; by default ``ROTA_TOKEN``.
            namespace: for a token of several namespaces; by default ``ROTA_NAMESPACE``.
            timeout: seconds for a request with all its retries.
            silence: seconds without data after which an attempt is given up.
            verify: a file of trusted certificates, or an `ssl.SSLContext`. False disables certificate
                verification.
        """
        policy = RetryPolicy(timeout=timeout, silence=silence)
        connection: C = self._connect(http_settings(url, token, namespace, verify), policy)
        super().__init__(connection)
        self.jobs = Jobs(connection)
        self.schedules = Schedules(connection)
        self.workflows = Workflows(connection)
        self.runs = Runs(connection)
        self.queues = Queues(connection)
        self.pools = Pools(connection)
        self.alerts = Alerts(connection)
        self.maintenance = Maintenance(connection)
        self.bulk = Bulk(connection)
        self.nodes = Nodes(connection)
        self.tasks = Tasks(connection)
        self.dead = Dead(connection)
        self.events = Events(connection)
        self.signals = Signals(connection)
        self.endpoints = Endpoints(connection)
        self.triggers = Triggers(connection)
        self.sinks = Sinks(connection)
        self.webhooks = Webhooks(connection)
        self.tokens = Tokens(connection)
        self.users = Users(connection)
        self.roles = Roles(connection)
        self.sessions = Sessions(connection)
        self.namespaces = Namespaces(connection)
        self.audit = Audit(connection)

    @call
    def me(self) -> Exchange[wire.Me]:
        """Return the owner of the token, and its permissions."""
        return fetch("/v1/session", wire.Me)

    @call
    def doctor(self) -> Exchange[Diagnosis]:
        """Check the database and the installation: for an admin of all namespaces."""
        return fetch("/v1/doctor", Diagnosis)


class Client(_Client[BlockingConnection]):
    """A client for code without an event loop. Use it in a ``with`` block, or `close` it.

    Threads may share it.
    """

    _connect = BlockingConnection

    def close(self) -> None:
        self._connection.http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class AsyncClient(_Client[AsyncConnection]):
    """A client for coroutines. Use it in an ``async with`` block, or `close` it."""

    _connect = AsyncConnection

    async def close(self) -> None:
        await self._connection.http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
