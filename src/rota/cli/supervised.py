"""The worker processes of `rota pool`."""

from __future__ import annotations

import asyncio
import contextlib
import sys

from rota.cli.live import LoggedNode
from rota.errors import StoreUnavailable


class SupervisedNode(LoggedNode):
    """A worker of `rota pool`. When its supervisor is gone it drains, and ends when nothing runs."""

    async def start(self) -> None:
        await super().start()
        watching = asyncio.create_task(self._watch())
        self._undo.callback(watching.cancel)

    async def _watch(self) -> None:
        """Wait for the end of the standard input, which the supervisor holds open."""
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while await reader.read(1024):
            pass
        store = await self.app.store()
        with contextlib.suppress(StoreUnavailable):
            # As `rota nodes drain`: unlike a signal, it has no end after which jobs are interrupted.
            await store.database.fetch("set_node_wish", self.settings.namespace, self.id, "drain")
        while not self._is_drained():
            await asyncio.sleep(0.1)  # noqa: ASYNC110 - what runs tells nobody when it ends
        self.request_stop()

    def _is_drained(self) -> bool:
        role = self.worker_role
        return role is None or (role.is_draining() and not self.count_running())
