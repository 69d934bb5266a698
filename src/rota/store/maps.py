"""Maps in the tables: chunks, the results of members, and those that failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from rota.store.database import Database


class NewChunk(msgspec.Struct, frozen=True):
    """Members on their way to `rota.add_chunks`."""

    number: int
    first: int
    size: int
    items: msgspec.Raw


class Feed(msgspec.Struct, frozen=True):
    """Chunks on their way to one map over a generator."""

    step: int
    id: UUID
    chunks: Sequence[NewChunk]


class MapStore:
    """One short method per query. An attempt's writes are guarded by its lease and the chunk's token."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def make(
        self, run: UUID, step: int, id: UUID, *, each_job: bool, at_once: int, tolerated: int,
        share: float | None, closed: bool, chunks: Sequence[NewChunk],
    ) -> None:  # fmt: skip
        """Store the map of a step, unless it is there."""
        text = msgspec.json.encode(chunks).decode()
        await self.database.fetch(
            "make_map", run, step, id, each_job, at_once, tolerated, share, closed, text
        )

    async def start(self, run: UUID, step: int) -> int:
        """Start the step of a map, and return its state: it may end at once."""
        state: int = await self.database.fetchval("start_map", run, step)
        return state

    async def add(self, run: UUID, step: int, chunks: Sequence[NewChunk], *, closes: bool) -> bool:
        """Add chunks to a map that is open. The same ones again change nothing."""
        text = msgspec.json.encode(chunks).decode()
        return bool(await self.database.fetchval("add_chunks", run, step, text, closes))

    async def open(
        self, node: UUID, keys: Sequence[tuple[UUID, int, UUID, int, int]]
    ) -> dict[UUID, Any]:
        """Open chunks, given as (job, token, run, step, number); by job, those that are this node's."""
        columns = [list(column) for column in zip(*keys, strict=True)]
        rows = await self.database.fetch("open_chunks", node, *columns)
        return {row["id"]: row for row in rows}

    async def record(
        self, node: UUID, job: UUID, token: int, run: UUID, step: int, number: int, *, done: int,
        begun: int | None, first: int, size: int, results: str | None, members: str | None,
    ) -> bool:  # fmt: skip
        """Record members; False: the chunk is no longer this attempt's."""
        return bool(
            await self.database.fetchval(
                "record_members", node, job, token, run, step, number, done, begun, first, size,
                results, members,
            )
        )  # fmt: skip

    async def reopen(self, run: UUID, steps: Sequence[int], but: int = -1) -> None:
        """Prepare the maps among steps that wait again, but for one."""
        await self.database.fetch("reopen_maps", run, steps, but)

    async def reopen_members(self, run: UUID, step: int, numbers: Sequence[int] | None) -> int:
        """Let failed members run again, all or some; return how many."""
        count: int = await self.database.fetchval("reopen_members", run, step, numbers)
        return count

    async def restart_members(self, run: UUID, step: int) -> None:
        await self.database.fetch("restart_members", run, step)

    async def forget(self, run: UUID, step: int) -> None:
        await self.database.fetch("forget_map", run, step)

    async def renew(self, run: UUID, step: int) -> None:
        """Let all members run anew. The list stays."""
        await self.database.fetch("renew_map", run, step)

    # -- lists from generators

    async def open_feed(
        self, node: UUID, job: UUID, token: int, run: UUID, step: int
    ) -> list[Any] | None:
        """Begin the lists of the maps over a generator's step; None: not this node's job."""
        rows = await self.database.fetch("open_feed", node, job, token, run, step)
        return None if rows and rows[0]["lost"] else rows

    async def feed(
        self, node: UUID, job: UUID, token: int, run: UUID, feeds: Sequence[Feed], *, closes: bool
    ) -> list[int] | None:
        """Add chunks to such lists. Return the steps that still take them; None: not this node's."""
        text = msgspec.json.encode(feeds).decode()
        fed: list[int] | None = await self.database.fetchval(
            "feed_maps", node, job, token, run, text, closes
        )
        return fed

    # -- reading

    async def progress(self, run: UUID, step: int | None = None) -> list[Any]:
        return await self.database.fetch("map_progress", run, step)

    async def chunks(self, run: UUID, step: int, member: int, limit: int) -> list[Any]:
        """Return chunks from the one that holds a member on."""
        return await self.database.fetch("map_chunks", run, step, member, limit)

    async def chunks_of(self, run: UUID, step: int, members: Sequence[int]) -> list[Any]:
        return await self.database.fetch("chunks_of_members", run, step, members)

    async def results(self, run: UUID, step: int, first: int, last: int) -> list[Any]:
        return await self.database.fetch("map_results", run, step, first, last)

    async def members(
        self, run: UUID, step: int, first: int, last: int, state: int | None, limit: int | None
    ) -> list[Any]:
        """Return members that have failed at least once."""
        return await self.database.fetch("map_members", run, step, first, last, state, limit)

    async def size_of_results(self, run: UUID, step: int) -> int:
        size: int = await self.database.fetchval("size_of_results", run, step)
        return size
