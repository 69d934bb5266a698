"""Keeps a worker's list of stored endpoints as the database has it.

Protocol. A tick reads one digest of all endpoints of the namespace, and the endpoints themselves only
when it is another than before. What is new becomes a task of this node, and its name part of the
worker's claims; what changed replaces its task, for the attempts that start from then on. What was
removed is no longer claimed; its task stays here for what still runs. A change in the database hints at
itself; a lost hint costs the pause between two ticks. A name that the application's own code has is the
code's.

The names of the tasks are written to the node's row, for explanations and hints; and again after the
node got another identity. Dying anywhere changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any
from uuid import UUID

from rota.app import App
from rota.errors import RotaError
from rota.lib.ids import unit
from rota.operations.endpoint_push import EndpointTask
from rota.runtime.heartbeat import Heartbeat
from rota.runtime.ticker import Service
from rota.store.endpoints import EndpointStore, StoredEndpoint
from rota.task import Task

log = logging.getLogger("rota.endpoints")

_EVERY = 5.0


class EndpointWatch(Service):
    name = "endpoints"

    def __init__(
        self, app: App, store: EndpointStore, tasks: dict[str, Task[..., Any]], heartbeat: Heartbeat,
        know: Callable[[list[str]], None],
    ) -> None:  # fmt: skip
        self._app = app
        self._store = store
        self._tasks = tasks  # the worker's own: this service adds to it
        self._own = frozenset(tasks)
        self._heartbeat = heartbeat
        self._know = know
        self._digest = ""
        self._rows: dict[str, StoredEndpoint] = {}
        self._registered: tuple[UUID, list[str]] | None = None

    async def tick(self) -> float:
        await self.load()
        names = self.names()
        if self._registered != (self._heartbeat.node_id, names):
            node = self._heartbeat.node_id
            await self._store.know_tasks(node, names)
            self._registered = (node, names)
        return _EVERY * (0.75 + unit() / 2)

    def registered(self) -> None:
        """Note that the node's row was made with the current names."""
        self._registered = (self._heartbeat.node_id, self.names())

    def names(self) -> list[str]:
        return sorted(self._own | self._rows.keys())

    async def load(self) -> None:
        namespace = self._app.settings.namespace
        digest = await self._store.versions(namespace)
        if digest == self._digest:
            return
        rows = {row.name: row for row in await self._store.list(namespace)}
        for name in sorted(rows.keys() & self._own):
            log.warning(
                "endpoint %r is ignored: a task of this node's code has the same name", name
            )
            del rows[name]
        for name, row in list(rows.items()):
            known = self._rows.get(name)
            if known is None or known.version != row.version:
                try:
                    self._tasks[name] = EndpointTask(self._app.rota, row)
                except RotaError as error:
                    log.error("endpoint %r can't be served here: %s", name, error)
                    del rows[name]
        self._rows, self._digest = rows, digest
        names = self.names()
        self._heartbeat.know_tasks(tuple(names))
        self._know(names)
