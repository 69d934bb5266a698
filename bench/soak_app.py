"""Tasks for an hour: quick ones, some that fail first, some under a limit, some cancelled."""

from __future__ import annotations

import asyncio

from rota import App, Context, Retry

app = App()
_QUICK = Retry(max_attempts=3, base=0.2, cap=1.0)


@app.task
async def noop(number: int = 0) -> None:
    pass


@app.task(queue="plain")
async def returns(number: int) -> dict[str, int]:
    return {"number": number}


@app.task(queue="flaky", retry=_QUICK)
async def flaky(ctx: Context, number: int) -> None:
    """Fail the first time; one in a hundred always."""
    if ctx.attempt == 1 or number % 100 == 0:
        raise ValueError(f"attempt {ctx.attempt}")


@app.task(queue="limited", concurrency=20)
async def limited(number: int) -> None:
    await asyncio.sleep(0.002)


@app.task
async def ticked() -> None:
    """Is what schedules run."""
