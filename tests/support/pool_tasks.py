"""Tasks for workers of `rota pool`, which run in processes of their own."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from rota import App

app = App(processes=1)


@app.task(queue="pool")
async def hold(path: str) -> int:
    """Run until the file is there."""
    while not Path(path).exists():
        await asyncio.sleep(0.05)
    return os.getpid()


@app.task(queue="pool")
async def crash(path: str) -> None:
    """End the process, the first time."""
    if not Path(path).exists():
        Path(path).touch()
        os._exit(3)
