"""Jobs, dead letters and queues of a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from rota.cli.remote.noun import Noun, collect
from rota.errors import NotFound
from rota.model import (
    Cancelled,
    DeadCount,
    Job,
    LogLine,
    QueueStatus,
    RunStats,
    TaskInfo,
)

Jobs = list[Job]
Ids = list[UUID]
Tasks = Sequence[TaskInfo]


class RemoteJobs(Noun):
    async def find(self, id: UUID | str) -> Job | None:
        try:
            return await self._client.jobs.get(id)
        except NotFound:
            return None

    async def get(self, id: UUID | str) -> Job:
        return await self._client.jobs.get(id)

    async def list(self, **filters: Any) -> Jobs:
        return await collect(self._client.jobs.list_whole(**filters, page_size=500))

    async def look_whole(self, **filters: Any) -> tuple[Jobs, UUID | None]:
        return await self.list(**filters), None  # it looks as far as it must, a page at a time

    async def logs(
        self, id: UUID | str, *, attempt: int | None = None, follow: bool = False
    ) -> AsyncIterator[LogLine]:
        async for line in self._client.jobs.logs(id, attempt=attempt, follow=follow):
            yield line

    async def cancel(self, id: UUID | str) -> Cancelled:
        return await self._client.jobs.cancel(id)

    async def dead_letters(self, **filters: Any) -> Ids:
        return [*await self._client.dead.ids(**filters)]

    async def retry_many(self, ids: Sequence[UUID]) -> Ids:
        return [*await self._client.dead.retry_ids(ids)]

    async def discard_many(self, ids: Sequence[UUID]) -> Ids:
        return [*await self._client.dead.discard_ids(ids)]


class RemoteHistory(Noun):
    async def jobs(
        self, since: datetime, until: datetime, **filters: Any
    ) -> AsyncIterator[Job]:  # fmt: skip
        async for job in self._client.jobs.ended(since, until, **filters, page_size=200):
            yield job


class RemoteDead(Noun):
    async def count_by_error(
        self, *, task: str | None = None, queue: str | None = None
    ) -> Sequence[DeadCount]:
        return await self._client.dead.errors(task=task, queue=queue)


class RemoteQueues(Noun):
    async def pause(self, name: str, *, must_exist: bool = False) -> QueueStatus:
        return await self._client.queues.pause(name, new=not must_exist)

    async def configure(self, name: str, **settings: Any) -> QueueStatus:
        return await self._client.queues.configure(name, settings, new=True)


class RemoteStatistics(Noun):
    async def task(self, name: str, within: str = "1h") -> RunStats:
        return await self._client.tasks.stats(name, within)


class RemoteRegistry(Noun):
    async def list(self, *, limit: int = 100) -> Tasks:
        return (await self._client.tasks.list())[:limit]

    async def get(self, name: str) -> TaskInfo:
        return await self._client.tasks.get(name)
