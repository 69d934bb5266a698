"""Operations on queues: list, pause and resume them, and limit how long their jobs run."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from rota.config import check_name
from rota.errors import ConfigError, NotFound
from rota.model import QueueStatus
from rota.store.changes import changing

if TYPE_CHECKING:
    from rota.operations.rota import Rota


class Queues:
    """`app.queues`"""

    def __init__(self, rota: Rota) -> None:
        self._rota = rota

    async def list(self) -> list[QueueStatus]:
        return await (await self._rota.store()).list_queues(self._rota.namespace)

    async def check_known(self, name: str) -> None:
        """Refuse a name that no queue has, with the one that may be meant."""
        store = await self._rota.store()
        known = await store.known_queues(self._rota.namespace)
        if name not in known:
            near = get_close_matches(name, known, 1)
            meant = f"; do you mean {near[0]!r}?" if near else "; `rota queues` lists them"
            raise NotFound(f"there is no queue {name!r}{meant}")

    async def pause(self, name: str, *, must_exist: bool = False) -> None:
        """No job of this queue is started until it is resumed. What runs goes on.

        With `must_exist`, a queue that has had no job and that no task declares is refused.
        """
        check_name("queue", name)
        if must_exist:
            await self.check_known(name)
        store = await self._rota.store()
        async with changing(store.database, "pause", f"queue {name}") as change:
            paused_at = await store.pause_queue(self._rota.namespace, name)
            change.after = {"paused_at": paused_at}

    async def resume(self, name: str) -> None:
        check_name("queue", name)
        store = await self._rota.store()
        async with changing(store.database, "resume", f"queue {name}"):
            if not await store.resume_queue(self._rota.namespace, name):
                raise NotFound(f"there is no queue {name!r}; `rota queues` lists them")

    async def set_max_run_time(self, name: str, seconds: float | None) -> None:
        """Set how long an attempt of this queue's jobs may run when the job has no timeout.

        What runs longer is stopped as after a timeout. None: the installation's `max_run_time` counts.
        """
        check_name("queue", name)
        if seconds is not None and not 1 <= seconds < 1e9:
            raise ConfigError(f"max_run_time must be 1 second or more, or None, not {seconds!r}")
        store = await self._rota.store()
        async with changing(store.database, "set", f"queue {name}") as change:
            await store.set_max_run_time(self._rota.namespace, name, seconds)
            change.after = {"max_run_time": seconds}
