"""Batches: where in its lanes the jobs are that a node holds. One short method per query.

A batch holds the jobs that one claim took of one lane. It is stored as the first and the last row in the
order of claims (rank and id); other nodes' jobs may lie between, as many as the lane has. So the jobs of
batches are read in parts of a bounded number of rows. When nothing is held of a part any more, its batch
begins after it, or is closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from rota.store.database import Connection, Store
from rota.store.rows import columns_of

# How many rows of lanes one call reads, and at least how many for each batch.
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


class BatchStore(Store):
    async def close(self, node: UUID, tokens: Sequence[int]) -> None:
        await self.database.fetch("close_batches", node, tokens)

    async def open_ones(self, node: UUID) -> list[Batch]:
        return await self._all(Batch, "open_batches", node)

    async def parts(
        self, node: UUID, batches: Sequence[Batch], connection: Connection = None
    ) -> list[BatchPart]:
        """Return the part of each batch that is to be read next."""
        rows = max(_LEAST_PART, _LOOKED_AT // max(1, len(batches)))
        columns = columns_of(batches, "token", "lane")
        return await self._all(BatchPart, "batch_parts", node, *columns, rows, on=connection)

    async def held_jobs(
        self, node: UUID, parts: Sequence[BatchPart], connection: Connection = None
    ) -> list[Any]:
        """Lock and return the jobs of these parts, except those that another has locked."""
        columns = columns_of(parts, *BatchPart.__struct_fields__[:-1])
        return await self.database.fetch("held_jobs", node, *columns, on=connection)

    async def close_parts(
        self, node: UUID, parts: Sequence[BatchPart], connection: Connection = None
    ) -> int:
        """Close the parts of which nothing is held any more, and return how many these are."""
        columns = columns_of(parts, *BatchPart.__struct_fields__)
        return await self._one(int, "close_parts", node, *columns, on=connection)
