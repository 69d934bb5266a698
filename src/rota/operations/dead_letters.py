"""Operations on dead letters: failed jobs in groups of the same task and error."""

from __future__ import annotations

from rota.errors import NotFound
from rota.model import DeadCount, DeadGroup, ManyChanged
from rota.operations.base import Operations
from rota.operations.jobs import MANY, Action
from rota.store.search import JobSearch


class DeadLetters(Operations):
    """`app.dead`"""

    async def groups(
        self, *, task: str | None = None, queue: str | None = None, limit: int = 100
    ) -> list[DeadGroup]:
        """List the groups, the largest first. Messages that differ in numbers and ids only are one
        group."""
        search = JobSearch(await self._database())
        return await search.dead_groups(self._namespace, task, queue, limit)

    async def count_by_error(
        self, *, task: str | None = None, queue: str | None = None
    ) -> list[DeadCount]:
        """Count the dead letters by task and type of error, the most frequent first."""
        return await (await self._rota.store()).count_dead(self._namespace, task=task, queue=queue)

    async def retry_group(
        self, fingerprint: str, *, limit: int = MANY, dry_run: bool = False
    ) -> ManyChanged:
        """Run the jobs of a group again, the oldest first."""
        return await self.change_group("retry", fingerprint, limit=limit, dry_run=dry_run)

    async def discard_group(
        self, fingerprint: str, *, limit: int = MANY, dry_run: bool = False
    ) -> ManyChanged:
        """Take the jobs of a group off the list for good. They stay readable for their retention."""
        return await self.change_group("discard", fingerprint, limit=limit, dry_run=dry_run)

    async def change_group(
        self, action: Action, fingerprint: str, *, limit: int = MANY, dry_run: bool = False
    ) -> ManyChanged:
        """Retry or discard a group; see `retry_group` and `discard_group`."""
        search = JobSearch(await self._database())
        ids = await search.find_dead_group(self._namespace, fingerprint, limit)
        if not ids:
            raise NotFound(
                f"there are no dead letters {fingerprint!r}: perhaps they were retried or discarded",
                subject=fingerprint,
            )
        subject = f"dead letters {fingerprint}"
        return await self._rota.jobs.change_selected(
            action, ids, subject, limit=limit, dry_run=dry_run
        )
