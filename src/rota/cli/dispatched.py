"""A worker that takes its jobs from a broker, as `rota start --dispatch` runs it."""

from __future__ import annotations

import logging

from rota.lib import service_manager
from rota.worker.dispatch.node import DispatchedNode


class LoggedDispatchedNode(DispatchedNode):
    """Logs a request to stop, and reports to systemd."""

    async def start(self) -> None:
        await super().start()
        service_manager.notify("READY=1")

    def request_stop(self) -> None:
        service_manager.notify("STOPPING=1")
        logging.getLogger("rota.dispatch").info(
            "asked to stop; %d jobs are running", self.count_running()
        )
        super().request_stop()
