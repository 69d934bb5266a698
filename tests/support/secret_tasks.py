"""Tasks that are given a secret, and say it in every way there is."""

from __future__ import annotations

import logging

from rota import App, Context, Fatal, SyncContext

app = App(processes=1)


@app.task
async def echo(secret: str) -> str:
    return secret


@app.task(runner="process")
def echo_in_process(secret: str) -> str:
    return secret


@app.task
async def talk(secret: str, ctx: Context) -> str:
    print(secret)
    logging.getLogger("app").warning("so it is: %s", secret)
    ctx.progress({"so far": secret})
    await ctx.once("said", lambda: secret)
    return secret


@app.task
async def fail(secret: str) -> None:
    raise Fatal(f"no luck with {secret}")


@app.task(guarantee="exactly_once")
async def exactly(secret: str, ctx: Context) -> str:
    return secret


@app.task(guarantee="exactly_once", runner="process")
def exactly_in_process(secret: str, ctx: SyncContext) -> str:
    return secret


@app.task
async def lookalike() -> dict[str, str]:
    return {"$rota-encrypted": "1.k.j.AAAA"}
