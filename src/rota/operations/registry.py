"""Operations on registered tasks: what nodes' code takes and returns, for those who don't have it."""

from __future__ import annotations

from typing import Any

import msgspec

from rota.core.signature import Signature
from rota.errors import NotFound
from rota.model import Guarantee, TaskInfo
from rota.operations.base import Operations
from rota.store.rows import asked_of

_signature = msgspec.json.Decoder(Signature).decode


class Registry(Operations):
    """`app.registry`"""

    async def list(self, *, after: str = "", limit: int = 100) -> list[TaskInfo]:
        """List the tasks that nodes have registered, by name, from after a name on."""
        rows = await (await self._database()).fetch(
            "list_tasks", self._namespace, after, None, limit
        )
        return [_info(row) for row in rows]

    async def get(self, name: str) -> TaskInfo:
        """Return a task that nodes have registered: its options, arguments and result."""
        database = await self._database()
        for row in await database.fetch("list_tasks", self._namespace, "", name, 1):
            return _info(row)
        raise NotFound(
            f"no node has registered a task {name!r} in namespace {self._namespace!r}", subject=name
        )


def _info(row: Any) -> TaskInfo:
    signature = _signature(row["signature"]) if row["signature"] else Signature()
    return TaskInfo(
        name=row["name"], queue=row["queue"], **asked_of(tuple(row["needs"])), priority=row["priority"],
        guarantee=Guarantee(row["guarantee"]).label, max_attempts=row["max_attempts"],
        timeout=row["timeout"], registered_at=row["registered_at"], workers=row["workers"],
        version=signature.version, description=signature.description, arguments=signature.schema,
        returns=signature.returns,
    )  # fmt: skip
