"""Operations on the history: read the jobs that have ended, all of a period."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Literal, get_args
from uuid import UUID

from rota.errors import ConfigError
from rota.model import HistoryPartition, Job, State
from rota.operations.base import Operations
from rota.store.history import HistoryStore

PartitionSize = Literal["day", "hour"]
_PAGE = 200  # a payload and a result may have a megabyte each


class History(Operations):
    """`app.history`"""

    async def page(
        self, since: datetime, until: datetime, *, state: str | None = None,
        task: str | None = None, queue: str | None = None, after: UUID | None = None,
        limit: int = _PAGE,
    ) -> Sequence[Job]:  # fmt: skip
        """Return jobs that ended in a period, in the order in which they were submitted.

        For the next page pass the last id as `after`.
        """
        for name, moment in (("since", since), ("until", until)):
            if moment.tzinfo is None:
                raise ConfigError(f"{name} needs a time zone, such as UTC", field=name)
        chosen = State.parse(state) if state else None
        if chosen is not None and not chosen.is_final:
            ended = ", ".join(each.label for each in State if each.is_final)
            raise ConfigError(
                f"state must be that of a job that has ended ({ended}), not {chosen.label}",
                field="state",
            )
        if not 1 <= limit <= 1_000:
            raise ConfigError(f"limit must be from 1 to 1000, not {limit}", field="limit")
        return await HistoryStore(await self._database()).ended_jobs(
            self._namespace, since, until, state=chosen, task=task, queue=queue, after=after,
            limit=limit,
        )  # fmt: skip

    async def partitions(self) -> Sequence[HistoryPartition]:
        """List the partitions of the history, with their sizes. All namespaces are in the same ones."""
        return await HistoryStore(await self._database()).partitions()

    async def partition_by(self, size: PartitionSize) -> None:
        """Set whether the history has a partition for each day (the default) or for each hour.

        It begins with tomorrow (UTC), or the day after in the last hour of a day: a scheduler replaces
        the empty partitions of the coming days within a minute. Those that have jobs stay as they are.
        """
        if size not in get_args(PartitionSize):
            raise ConfigError(f"size must be day or hour, not {size!r:.100}", field="size")
        store = HistoryStore(await self._database())
        async with self._changing("set", "history") as change:
            change.before = {"partitions": "hour" if await store.by_hour() else "day"}
            await store.set_by_hour(size == "hour")
            change.after = {"partitions": size}

    async def jobs(
        self, since: datetime, until: datetime, *, state: str | None = None,
        task: str | None = None, queue: str | None = None, after: UUID | None = None,
    ) -> AsyncIterator[Job]:  # fmt: skip
        """Iterate over all jobs that ended from `since` to before `until`.

        Each comes once, in the order in which they were submitted, however many there are; one page is
        in memory at a time. A worker may report an end some seconds after it: leave a minute between
        `until` and now if another period is to follow. `after`: begin behind the job of this id.
        """
        while True:
            found = await self.page(
                since, until, state=state, task=task, queue=queue, after=after, limit=_PAGE
            )
            for job in found:
                yield job
            if len(found) < _PAGE:
                return
            after = found[-1].id
