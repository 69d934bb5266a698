"""Workflows, runs and signals of a server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from rota.cli.remote.noun import PAGE, Noun, collect
from rota.core.workflow.graph import Graph
from rota.core.workflow.model import Definition
from rota.model import (
    MapMember,
    Run,
    RunCheckpoint,
    RunStep,
    Signal,
    WorkflowInfo,
)

Id = UUID | str
Runs = list[Run]
Workflows = Sequence[WorkflowInfo]
Signals = Sequence[Signal]


class RemoteWorkflows(Noun):
    async def definition(self, name: str, version: int | None = None) -> Definition:
        found = await self._client.workflows.get(name, version)
        return msgspec.convert(found.definition, Definition)

    async def retire(self, name: str, *, retired: bool = True) -> WorkflowInfo:
        workflows = self._client.workflows
        return await (workflows.retire(name) if retired else workflows.restore(name))

    async def put_all(
        self, graphs: Sequence[Graph], *, retire: Sequence[str] = (), source: str = "file"
    ) -> None:
        definitions = [msgspec.to_builtins(graph.definition) for graph in graphs]
        await self._client.workflows.apply(definitions, retire=retire)


class RemoteRuns(Noun):
    async def start(self, name: str, given: Mapping[str, Any] | None = None, **options: Any) -> Any:
        return await self._client.runs.start(name, given, **options)

    async def list(
        self, *, workflow: str | None = None, state: str | None = None, limit: int = 50
    ) -> Runs:
        runs = self._client.runs.list(workflow=workflow, state=state, limit=limit, page_size=PAGE)
        return await collect(runs)

    async def steps(self, id: Id, *, limit: int = 1000) -> Sequence[RunStep]:
        return await _pages(lambda **page: self._client.runs.steps(id, **page), -1, limit)

    async def members(
        self, id: Id, step: str, *, after: int = -1, state: str | None = None, limit: int = 100
    ) -> Sequence[MapMember]:
        members = self._client.runs.members
        return await _pages(lambda **page: members(id, step, state=state, **page), after, limit)

    async def history(self, id: Id, *, limit: int = 1000) -> Sequence[RunCheckpoint]:
        return await _pages(lambda **page: self._client.runs.history(id, **page), 0, limit)


async def _pages(fetch: Callable[..., Awaitable[Any]], after: int, limit: int) -> list[Any]:
    """Collect pages whose `next` is what to pass as `after`."""
    found: list[Any] = []
    while True:
        page = await fetch(after=after, limit=min(limit - len(found), PAGE))
        found += page.items
        if page.next is None or len(found) >= limit:
            return found
        after = page.next


class RemoteSignals(Noun):
    async def list(
        self, *, name: str | None = None, key: str | None = None, limit: int = 100
    ) -> Signals:
        return await self._client.signals.list(name=name, key=key, limit=min(limit, PAGE))
