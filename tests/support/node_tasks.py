"""Tasks for tests that run a node in the test's own process."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from rota import App, Context, Fatal, Retry, SyncContext

app = App(processes=1)

# What coroutines did, in this process.
seen: list[object] = []


@app.task
async def remember(value: object) -> object:
    seen.append(value)
    return value


@app.task
async def sleep_long(ctx: Context) -> None:
    seen.append("sleeping")
    try:
        await asyncio.sleep(3600)
    finally:
        seen.append(("woken", ctx.cancelled))


@app.task(timeout=0.2, retry=Retry(max_attempts=2, base=0.01))
async def too_slow() -> None:
    await asyncio.sleep(3600)


@app.task
def touch_and_sleep(path: str) -> None:
    Path(path).touch()
    time.sleep(3600)


@app.task(runner="thread")
def touch_and_spin(path: str, ctx: SyncContext) -> None:
    Path(path).touch()
    while True:
        time.sleep(0.001)


@app.task(runner="thread")
def in_thread(number: int, ctx: SyncContext) -> int:
    ctx.progress(number, 10, "half way")
    return ctx.once(f"thread-{number}", lambda: number * 2)


@app.task
def in_child(number: int, ctx: SyncContext) -> list[int]:
    ctx.progress(number, 10, "half way")
    doubled = ctx.once(f"child-{number}", lambda: number * 2)
    again = ctx.once(f"child-{number}", lambda: -1)
    return [doubled, again, ctx.attempt, os.getpid()]


@app.task
async def reports_and_waits(ctx: Context) -> None:
    ctx.progress(3, 10, "going")
    await asyncio.sleep(3600)


@app.task
async def in_loop(number: int, ctx: Context) -> list[int]:
    ctx.progress(number, 10, "half way")
    doubled = await ctx.once(f"loop-{number}", lambda: number * 2)
    again = await ctx.once(f"loop-{number}", lambda: -1)
    return [doubled, again, ctx.attempt, ctx.token]


@app.task(retry=Retry(max_attempts=3, base=0.01))
async def dies_inside_once(ctx: Context) -> None:
    def effect() -> None:
        seen.append("effect")
        raise asyncio.CancelledError  # stopped from outside: nobody knows whether it happened

    await ctx.once("unknown", effect)


@app.task(retry=Retry(max_attempts=3, base=0.01))
async def fails_inside_once(ctx: Context) -> str:
    def effect() -> str:
        seen.append("effect")
        if ctx.attempt == 1:
            raise ValueError("not this time")
        return "done"

    return await ctx.once("known", effect)


@app.task(retry=Retry(max_attempts=9))
async def fatal() -> None:
    raise Fatal("never again")


@app.task(retry=Retry(max_attempts=9))
async def later(ctx: Context) -> int:
    if ctx.attempt == 1:
        raise Retry.after(0.05, "busy")
    return ctx.attempt


@app.task
async def huge() -> str:
    return "x" * 2_000_000


@app.task(guarantee="exactly_once", retry=Retry(max_attempts=2, base=0.01))
async def insert_then_fail(number: int, ctx: Context) -> None:
    await ctx.connection.execute("insert into public.node_effect values ($1)", number)
    if ctx.attempt == 1:
        raise ValueError("after the insert")


@app.task(queue="heavy", needs=["gpu"])
async def needs_gpu() -> str:
    return "on a gpu"


@app.task(guarantee="at_most_once")
async def once_at_most() -> None:
    seen.append("began")
    raise ValueError("and failed")


concurrent = {"now": 0, "most": 0}


@app.task(queue="narrow")
async def count_concurrent() -> None:
    concurrent["now"] += 1
    concurrent["most"] = max(concurrent["most"], concurrent["now"])
    await asyncio.sleep(0.01)
    concurrent["now"] -= 1


# What a handler may do to its session, and what the next one then finds.

DISTURB = (
    "set search_path = pg_temp; set statement_timeout = '7s'; set lock_timeout = '7s';"
    " set default_transaction_read_only = on; set default_transaction_isolation = 'serializable';"
    " set timezone = 'Asia/Kathmandu'; set shop.customer = 'Ada';"
    " create temp table leftover (id int); select pg_advisory_lock(4711)"
)
OBSERVE = (
    "select current_setting('search_path'), current_setting('statement_timeout'),"
    " current_setting('lock_timeout'), current_setting('default_transaction_read_only'),"
    " current_setting('transaction_isolation'), current_setting('TimeZone'),"
    " coalesce(current_setting('shop.customer', true), ''),"
    " coalesce(to_regclass('pg_temp.leftover')::text, ''), current_setting('role'),"
    " (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid())::text,"
    " pg_backend_pid()::text"
)


@app.task(guarantee="exactly_once", retry=Retry(max_attempts=1))
async def look_then_disturb(ctx: Context, disturbance: str) -> list[str]:
    found = list(await ctx.connection.fetchrow(OBSERVE))
    await ctx.connection.execute(disturbance)
    return found


@app.task(guarantee="exactly_once", retry=Retry(max_attempts=1))
def look_then_disturb_in_child(ctx: SyncContext, disturbance: str) -> list[str]:
    from psycopg.rows import dict_row

    found = list(ctx.connection.execute(OBSERVE).fetchone())
    ctx.connection.execute(disturbance)
    ctx.connection.row_factory = dict_row
    return found
