"""Operations on workflows: declare, list, retire them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

import msgspec

from rota.core.workflow.graph import Graph
from rota.core.workflow.model import INLINE, Definition
from rota.errors import ConfigError, NotFound
from rota.lib.ids import new_id
from rota.model import WorkflowInfo
from rota.store.changes import Change, changing, record
from rota.store.database import Database
from rota.store.workflows import WorkflowStore

if TYPE_CHECKING:
    from rota.operations.rota import Rota
    from rota.run_handle import Declared

Infos: TypeAlias = list[WorkflowInfo]


def _encoded(definition: Definition) -> tuple[bytes, str]:
    """Return a definition as it is stored, and its digest."""
    text = msgspec.json.encode(definition, order="deterministic")
    return text, hashlib.sha256(text).hexdigest()[:32]


class Workflows:
    """`app.workflows`: the workflows of a namespace. `declared`: those in this process, by name."""

    def __init__(self, rota: Rota) -> None:
        self._rota = rota
        self.declared: dict[str, Declared] = {}
        # By digest, the versions that are known to be stored. An app may be closed and opened on
        # another database, or on the same one after that was emptied.
        self._versions: WeakKeyDictionary[Database, dict[str, int]] = WeakKeyDictionary()

    async def _store(self) -> WorkflowStore:
        return WorkflowStore((await self._rota.store()).database)

    async def put(self, graph: Graph) -> int:
        """Store a definition, unless it is stored already, and return its version."""
        definition = graph.definition
        _, digest = _encoded(definition)
        store = await self._store()
        versions = self._versions.setdefault(store.database, {})
        if (known := versions.get(digest)) is not None:
            return known
        namespace, name = self._rota.namespace, definition.name
        stored = await store.find_digest(namespace, name, digest)
        if stored is None:
            async with changing(store.database, "declare", f"workflow {name}") as change:
                await store.lock_name(namespace, name)
                stored = await store.find_digest(namespace, name, digest)
                if stored is None:
                    stored = await self._add(store, graph, "code")
                    change.after = {"version": stored, "steps": len(definition.steps)}
                else:
                    change.happened = False
        versions[digest] = stored
        return stored

    async def put_all(
        self, graphs: Sequence[Graph], *, retire: Sequence[str] = (), source: str = "file"
    ) -> None:
        """Make these the newest versions of their workflows, and retire others: all or none.

        A definition that is the newest already stays as it is; one that was retired is restored.
        """
        store = await self._store()
        namespace, wanted = self._rota.namespace, {each.definition.name: each for each in graphs}
        async with store.database.shared_transaction("put_workflows") as connection:
            for name in sorted({*wanted, *retire}):  # one order of locks for everybody
                await store.lock_name(namespace, name)
                newest = await store.newest(namespace, name)
                change = Change("retire", f"workflow {name}", namespace)
                if name not in wanted:
                    await store.retire(namespace, name, retired=True)
                elif newest is None or newest["digest"] != _encoded(wanted[name].definition)[1]:
                    version = await self._add(store, wanted[name], source)
                    steps = len(wanted[name].steps)
                    change.action, change.after = "declare", {"version": version, "steps": steps}
                    await store.retire(namespace, name, retired=False)
                elif newest["retired_at"] is not None:
                    change.action = "restore"
                    await store.retire(namespace, name, retired=False)
                else:
                    continue
                await record(store.database, connection, change)

    async def _add(self, store: WorkflowStore, graph: Graph, source: str) -> int:
        namespace, name = self._rota.namespace, graph.definition.name
        text, digest = _encoded(graph.definition)
        newest = await store.newest(namespace, name)
        version: int = newest["version"] + 1 if newest is not None else 1
        result = graph.result_step()
        await store.add(
            new_id(), namespace, name, version, digest, text.decode(),
            None if result is None else graph.numbers[result], graph.definition.deadline,
            graph.definition.retention, graph.compiled(), source,
        )  # fmt: skip
        return version

    async def declare(self) -> None:
        """Store what this process declares. A node does so at its start."""
        for workflow in list(self.declared.values()):
            await self.put_declared(workflow)

    async def put_declared(self, workflow: Declared) -> int:
        """Store a workflow of this process, after those that are steps of it; return its version."""
        await self._put_inner(workflow, [])
        return await self.put(workflow.graph)

    async def _put_inner(self, workflow: Declared, path: list[str]) -> None:
        path = [*path, workflow.name]
        for step in workflow.graph.definition.steps:
            if step.workflow is None:
                continue
            if step.workflow in path:
                cycle = " -> ".join([*path[path.index(step.workflow) :], step.workflow])
                raise ConfigError(f"workflow {workflow.name!r} is a step of itself: {cycle}")
            inner = self.declared.get(step.workflow)
            if inner is None:
                raise ConfigError(
                    f"workflow {workflow.name!r}, step {step.name!r}: no workflow is named "
                    f"{step.workflow!r} here"
                )
            await self._put_inner(inner, path)
            await self.put(inner.graph)

    async def list(self) -> Infos:
        """List the workflows, each with its newest version and how many of its runs are under way.

        Those that were composed by `rota.chain` and the like are left out.
        """
        rows = await (await self._store()).list_workflows(self._rota.namespace, f"{INLINE}%")
        return [self._info(row["name"], row) for row in rows]

    async def get(self, name: str, version: int | None = None) -> WorkflowInfo:
        """Return a workflow: its newest version, or another; `NotFound` when there is none."""
        store = await self._store()
        if version is None:
            row = await store.newest(self._rota.namespace, name)
        else:
            row = await store.version(self._rota.namespace, name, version)
        if row is None:
            which = f"version {version} of workflow {name!r}" if version else f"workflow {name!r}"
            raise NotFound(f"there is no {which}; `rota workflows` lists them", subject=name)
        return self._info(name, row)

    async def find(self, name: str) -> WorkflowInfo | None:
        """Return the newest version of a workflow; None when there is none."""
        row = await (await self._store()).newest(self._rota.namespace, name)
        return None if row is None else self._info(name, row)

    async def definition(self, name: str, version: int | None = None) -> Definition:
        """Return a stored definition."""
        info = await self.get(name, version)
        return msgspec.convert(info.definition, Definition)

    async def retire(self, name: str, *, retired: bool = True) -> WorkflowInfo:
        """Let no more runs of a workflow start, or let them again. Runs under way go on."""
        await self.get(name)
        store = await self._store()
        action = "retire" if retired else "restore"
        async with changing(store.database, action, f"workflow {name}"):
            await store.retire(self._rota.namespace, name, retired=retired)
        return await self.get(name)

    def _info(self, name: str, row: Any) -> WorkflowInfo:
        return WorkflowInfo(
            namespace=self._rota.namespace, name=name, version=row["version"],
            created_at=row["created_at"], definition=msgspec.json.decode(row["definition"]),
            retired_at=row["retired_at"], running=row.get("running"), source=row["source"],
        )  # fmt: skip
