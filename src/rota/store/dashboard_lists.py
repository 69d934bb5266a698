"""Lists of the dashboard: a page of each, and what is found by a piece of its name.

Protocol. Reads only, under row security. A page takes one row more than it shows, by an index, and says
so whether there is another. A search for a name looks at a number of names that doesn't grow with what
is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from rota.core.administration import Webhook
from rota.model import NodeStatus, SavedView
from rota.store.database import Database, Store
from rota.store.endpoints import EndpointStore, StoredEndpoint
from rota.store.jobs import JobStore
from rota.store.saved_views import SavedViewStore
from rota.store.webhooks import WebhookStore

LOOKED_NAMES = 300  # of a kind, for a piece inside of a name; its beginning is found by an index


class NodeNamed(msgspec.Struct, frozen=True):
    id: UUID
    name: str
    state: str


class Workers(msgspec.Struct, frozen=True):
    """The live workers that serve the same queues: these, or all of them if none is named."""

    queues: Sequence[str]
    nodes: int
    slots: int

    def serve(self, queue: str) -> bool:
        return not self.queues or queue in self.queues


class DashboardLists(Store):
    """The part of `DashboardStore` that lists."""

    def __init__(self, database: Database, namespace: str) -> None:
        super().__init__(database)
        self._namespace = namespace

    async def _fetch(self, query: str, *arguments: Any) -> list[Any]:
        return await self.database.fetch(query, self._namespace, *arguments)

    # -- pages

    async def nodes(self, *, ended: bool, skip: int, most: int) -> list[NodeStatus]:
        """Return nodes, the newest first."""
        store = JobStore(self.database)
        return await store.list_nodes(self._namespace, ended=ended, most=most, skip=skip)

    async def webhooks(self, *, skip: int, most: int) -> list[Webhook]:
        return await WebhookStore(self.database).list(self._namespace, most=most, skip=skip)

    async def endpoints(self, *, skip: int, most: int) -> list[StoredEndpoint]:
        return await EndpointStore(self.database).list(self._namespace, most=most, skip=skip)

    async def views(self, owner: str, *, skip: int, most: int) -> list[SavedView]:
        """Return one's own views, then those that others share."""
        store = SavedViewStore(self.database)
        return await store.list(self._namespace, owner, skip=skip, most=most)

    # -- workers

    async def workers(self) -> list[Workers]:
        """Return the live workers, those of the same queues together."""
        return await self._all(Workers, "workers_by_queues", self._namespace)

    async def workers_of(self, queue: str, most: int) -> list[NodeStatus]:
        """Return some workers that serve a queue."""
        return await self._all(NodeStatus, "workers_of_queue", self._namespace, queue, most)

    # -- by a piece of a name

    async def find_tasks(self, piece: str, most: int) -> list[str]:
        return await self._named("find_tasks", piece, most)

    async def find_queues(self, piece: str, most: int) -> list[str]:
        return await self._named("find_queues", piece, most)

    async def find_schedules(self, piece: str, most: int) -> list[Any]:
        return await self._fetch("find_schedules", piece, most, LOOKED_NAMES)

    async def find_nodes(self, piece: str, most: int) -> list[NodeNamed]:
        return await self._all(
            NodeNamed, "find_nodes", self._namespace, piece, most, LOOKED_NAMES
        )  # fmt: skip

    async def find_views(self, owner: str, piece: str, most: int) -> Sequence[SavedView]:
        store = SavedViewStore(self.database)
        return await store.find(self._namespace, owner, piece, most, LOOKED_NAMES)

    async def _named(self, query: str, piece: str, most: int) -> list[str]:
        return await self._all(str, query, self._namespace, piece, most, LOOKED_NAMES)

    async def schedule_after(self, after: str | None, count: int) -> str | None:
        """Return the name that is `count` places after another; None: no schedule comes after it."""
        return await self._first(str, "schedule_after", self._namespace, after, count)
