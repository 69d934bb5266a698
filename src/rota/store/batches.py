"""Batches: where in its lanes the jobs are that a node holds. One short method per query.

A batch is what one claim took of one lane. It is known by its first and last row in the order of claims
(rank and id), and others' jobs may lie between: as many as the lane has. So the jobs of batches are
looked for in parts of a bounded number of rows. When nothing is held of a part any more, its batch
begins after it, or is closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from rota.store.database import Connection, Database

# Rows of lanes that one look at batches may read, and at least how many for each batch.
_LOOKED_AT = 20_000
_LEAST_PART = 100


class Batch(msgspec.Struct, frozen=True):
    token: int
    lane: str


class BatchPart(msgspec.Struct, frozen=True):
    """From (low, low_id) to (until, until_id), both included; `last`: to the batch's end."""

    token: int
    lane: str
    low: int
    low_id: UUID
    until: int
    until_id: UUID
    last: bool


class BatchStore:
    def __init__(self, database: Database) -> None:
        self.database = database

    async def close(self, node: UUID, tokens: Sequence[int]) -> None:
        await self.database.fetch("close_batches", node, tokens)

    async def open_ones(self, node: UUID) -> list[Batch]:
        return [Batch(*row) for row in await self.database.fetch("open_batches", node)]

    async def parts(
        self, node: UUID, batches: Sequence[Batch], connection: Connection = None
    ) -> list[BatchPart]:
        """The part of each batch that is to be looked at next."""
        rows = max(_LEAST_PART, _LOOKED_AT // max(1, len(batches)))
        tokens, lanes = [batch.token for batch in batches], [batch.lane for batch in batches]
        found = await self._fetch(connection, "batch_parts", node, tokens, lanes, rows)
        return [BatchPart(*row) for row in found]

    async def held_jobs(
        self, node: UUID, parts: Sequence[BatchPart], connection: Connection = None
    ) -> list[Any]:
        """The jobs of these parts, locked in a transaction. What another has locked is left out."""
        return await self._fetch(connection, "held_jobs", node, *_columns(parts)[:-1])

    async def close_parts(
        self, node: UUID, parts: Sequence[BatchPart], connection: Connection = None
    ) -> int:
        """Of how many nothing is held any more: these aren't looked at again."""
        rows = await self._fetch(connection, "close_parts", node, *_columns(parts))
        count: int = rows[0][0]
        return count

    async def _fetch(self, connection: Connection, name: str, *arguments: Any) -> list[Any]:
        if connection is None:
            return await self.database.fetch(name, *arguments)
        rows: list[Any] = await connection.fetch(self.database.queries[name], *arguments)
        return rows


def _columns(parts: Sequence[BatchPart]) -> list[list[Any]]:
    return [[getattr(part, field) for part in parts] for field in BatchPart.__struct_fields__]
