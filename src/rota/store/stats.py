"""What monitoring asks of the database."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rota.store.database import Database


class StatsStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def count_by_queue(self) -> list[Any]:
        return await self._database.fetch("count_by_queue")

    async def count_dead_by_task(self) -> list[Any]:
        return await self._database.fetch("count_dead_by_task")

    async def count_set_aside(self) -> list[Any]:
        return await self._database.fetch("count_set_aside")

    async def count_nodes(self) -> list[Any]:
        return await self._database.fetch("count_nodes")

    async def count_shards(self) -> Any:
        return (await self._database.fetch("count_shards"))[0]

    async def settled_moment(self) -> datetime:
        moment: datetime = await self._database.fetchval("settled_moment")
        return moment

    async def count_occurrences(self, since: datetime, until: datetime) -> list[Any]:
        return await self._database.fetch("count_occurrences", since, until)

    async def count_events(self, since: datetime, until: datetime) -> list[Any]:
        return await self._database.fetch("count_events", since, until)
