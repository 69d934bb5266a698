"""Rota: one namespace of a database, and every operation on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rota.config import Settings
from rota.core.payloads import Limits
from rota.core.time.schedule import make_spec
from rota.handle import JobHandle
from rota.operations.alerts import Alerts
from rota.operations.bulk_changes import BulkChanges
from rota.operations.connection import Connections
from rota.operations.dead_letters import DeadLetters
from rota.operations.encryption import StoredEncryption
from rota.operations.endpoints import Endpoints
from rota.operations.events import AuditLog, Events
from rota.operations.history import History
from rota.operations.jobs import Jobs
from rota.operations.maintenance import Maintenance
from rota.operations.nodes import Nodes
from rota.operations.persons import Persons
from rota.operations.pools import Pools
from rota.operations.queues import Queues
from rota.operations.registry import Registry
from rota.operations.runs import Runs
from rota.operations.saved_views import SavedViews
from rota.operations.schedule_changes import Change
from rota.operations.schedules import Schedules
from rota.operations.signals import Signals
from rota.operations.sinks import Sinks
from rota.operations.statistics import Statistics
from rota.operations.submissions import Submissions
from rota.operations.triggers import Triggers
from rota.operations.webhooks import Webhooks
from rota.operations.workflows import Workflows
from rota.store.jobs import JobStore
from rota.store.signatures import Signatures
from rota.store.submitter import Submitter
from rota.task import Task


class Rota:
    """The operations on one namespace. An `App` has one; the server makes one per namespace.

    Args:
        connector: where connections come from.
        tasks: the tasks whose code is in this process, by name.
        module: the module that declares them; names the application unless `app_name` is set.
    """

    def __init__(
        self, connector: Connections, tasks: Mapping[str, Task[..., Any]], module: str = ""
    ) -> None:
        self.connector = connector
        self.tasks = tasks
        self._module = module
        self.submissions = Submissions(self)
        self.jobs = Jobs(self)
        self.history = History(self)
        self.dead = DeadLetters(self)
        self.queues = Queues(self)
        self.nodes = Nodes(self)
        self.pools = Pools(self)
        self.registry = Registry(self)
        self.statistics = Statistics(self)
        self.schedules = Schedules(self)
        self.events = Events(self)
        self.alerts = Alerts(self)
        self.maintenance = Maintenance(self)
        self.bulk = BulkChanges(self)
        self.views = SavedViews(self)
        self.webhooks = Webhooks(self)
        self.workflows = Workflows(self)
        self.runs = Runs(self)
        self.signals = Signals(self)
        self.endpoints = Endpoints(self)
        self.triggers = Triggers(self)
        self.sinks = Sinks(self)
        self.encryption = StoredEncryption(self)
        self.persons = Persons(self)
        self.audit = AuditLog(connector)

    @property
    def settings(self) -> Settings:
        return self.connector.settings

    @property
    def namespace(self) -> str:
        return self.connector.settings.namespace

    @property
    def app_name(self) -> str:
        """The name under which declared schedules are known: the setting `app_name`, or the module."""
        return self.settings.app_name or self._module

    @property
    def limits(self) -> Limits:
        return Limits(self.settings.max_payload_bytes, self.settings.max_payload_depth)

    async def submit(
        self, task: str, payload: Mapping[str, Any] | None = None, **options: Any
    ) -> JobHandle[Any]:
        """Submit a job by the name of its task; see `App.submit`."""
        return await self.submissions.submit_named(task, payload, options)

    async def schedule(self, name: str, task: str = "", **settings: Any) -> Change:
        """Create a schedule or change it from now on; see `App.schedule`."""
        return (await self.schedules.put(make_spec(name, task, **settings))).change

    async def store(self) -> JobStore:
        return (await self.connector.opened()).store

    async def submitter(self) -> Submitter:
        """Stores jobs that are made already; those that come at the same time share a commit."""
        return (await self.connector.opened()).submitter

    async def signatures(self) -> Signatures:
        """Return the signatures that nodes registered for their tasks."""
        return (await self.connector.opened()).signatures
