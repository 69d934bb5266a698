"""Tasks that go wrong in many ways, with secrets in their hands."""

from __future__ import annotations

import asyncio
import ctypes
import logging

from rota import App, Context, Retry

app = App(processes=1)
log = logging.getLogger("shop")


@app.task(retry=Retry(max_attempts=2, base=0.01))
async def fail(secret: str, ctx: Context) -> None:
    log.warning("about to fail")
    raise ValueError("went wrong")


@app.task(retry=Retry(max_attempts=1))
def crash(secret: str) -> None:
    ctypes.string_at(0)


@app.task(timeout=0.2, retry=Retry(max_attempts=1))
async def hang(secret: str) -> None:
    await asyncio.sleep(3600)


@app.task
async def return_it(secret: str) -> dict[str, str]:
    return {"secret": secret}
