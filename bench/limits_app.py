"""The task of the nodes that `bench.limits` starts, kills and counts: it notes its start and its end."""

from __future__ import annotations

import asyncio
from typing import Any

from bench.peers.common import Recorder
from rota import App

started = Recorder("started")
ended = Recorder("ended")


def declare(app: App) -> Any:
    @app.task
    async def timed(number: int, seconds: float = 0.0) -> None:
        started(number)
        try:
            if seconds:
                await asyncio.sleep(seconds)
        finally:
            ended(number)

    return timed


app = App()
timed = declare(app)
