"""The worker processes of `rota pool`."""

from __future__ import annotations

import asyncio
import logging
import sys

from rota.cli.live import LoggedNode

log = logging.getLogger("rota.pool")


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
        log.warning("the supervisor is gone: draining")
        while not await self._is_drained():  # noqa: ASYNC110 - what runs tells nobody when it ends
            await asyncio.sleep(0.2)
        self.request_stop()

    async def _is_drained(self) -> bool:
        """Ask to be drained, as `rota nodes drain` does: unlike a signal, that has no end after which
        jobs are interrupted. Without a database nothing is started either."""
        role = self.worker_role
        try:
            database = (await self.app.store()).database
            await database.fetch("set_node_wish", self.settings.namespace, self.id, "drain")
            draining = role is None or role.is_draining()
        except Exception as error:  # noqa: BLE001 - whatever it is, the process must not stay for ever
            log.warning("can't ask to be drained: %s", error)
            draining = True
        return draining and not self.count_running()
