"""Operations on queues: list, pause and resume them, and limit how long their jobs run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from difflib import get_close_matches

from rota.config import check_name
from rota.errors import ConfigError, NotFound
from rota.model import QueueStatus
from rota.operations.base import Operations
from rota.store.changes import Change


class Queues(Operations):
    """`app.queues`"""

    async def list(self) -> list[QueueStatus]:
        """List all queues, with how full and how late they are."""
        return await (await self._rota.store()).list_queues(self._namespace)

    async def get(self, name: str) -> QueueStatus:
        """Return one queue; `NotFound` when no job has been in it and no task declares it."""
        for queue in await self.list():
            if queue.name == name:
                return queue
        known = await (await self._rota.store()).known_queues(self._namespace)
        if name not in known:
            near = get_close_matches(name, known, 1)
            meant = f"; do you mean {near[0]!r}?" if near else "; `rota queues` lists them"
            raise NotFound(f"there is no queue {name!r}{meant}", subject=name)
        return QueueStatus(
            namespace=self._namespace, name=name, paused_at=None, ready=0, running=0,
            scheduled=0, lag=None,
        )  # fmt: skip

    @asynccontextmanager
    async def _changing_field(
        self, action: str, name: str, field: str, must_exist: bool
    ) -> AsyncIterator[Change]:
        """Open the transaction of a change, and record the value of `field` before it."""
        check_name("queue", name)
        async with self._changing(action, f"queue {name}") as change:
            try:
                change.before = {field: getattr(await self.get(name), field)}
            except NotFound:
                if must_exist:
                    raise
            yield change

    async def pause(self, name: str, *, must_exist: bool = False) -> QueueStatus:
        """Start no job of this queue until it is resumed. Running jobs are not affected.

        With `must_exist`, a queue that has had no job and that no task declares is refused.
        """
        store = await self._rota.store()
        async with self._changing_field("pause", name, "paused_at", must_exist) as change:
            change.after = {"paused_at": await store.pause_queue(self._namespace, name)}
        return await self.get(name)

    async def resume(self, name: str) -> QueueStatus:
        """Start the jobs of a paused queue again."""
        store = await self._rota.store()
        async with self._changing_field("resume", name, "paused_at", True):
            if not await store.resume_queue(self._namespace, name):
                raise NotFound(
                    f"there is no queue {name!r}; `rota queues` lists them", subject=name
                )
        return await self.get(name)

    async def set_max_run_time(
        self, name: str, seconds: float | None, *, must_exist: bool = False
    ) -> QueueStatus:
        """Set how long an attempt of this queue's jobs may run when the job has no timeout.

        An attempt that runs longer is stopped as after a timeout. None: the installation's
        `max_run_time` applies.
        """
        if seconds is not None and not 1 <= seconds < 1e9:
            raise ConfigError(
                f"max_run_time must be 1 second or more, or None, not {seconds!r}",
                field="max_run_time",
            )
        store = await self._rota.store()
        async with self._changing_field("set", name, "max_run_time", must_exist) as change:
            await store.set_max_run_time(self._namespace, name, seconds)
            change.after = {"max_run_time": seconds}
        return await self.get(name)
