"""Tasks for the fault tests. Each writes down that it began, to a file that survives its process."""

from __future__ import annotations

import asyncio
import ctypes
import os
from pathlib import Path

from rota import App, Context, Retry, SyncContext
from rota.durable.context import DurableContext

app = App(processes=2)

JOURNAL = Path(os.environ.get("FAULT_JOURNAL", "journal"))


def note(kind: str, number: int, token: int) -> None:
    line = f"{kind} {number} {token} {os.getpid()}\n".encode()
    file = os.open(JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line)  # one write, appended whole
    finally:
        os.close(file)


@app.task
async def at_least(number: int, ctx: Context) -> None:
    note("at_least", number, ctx.token)
    await asyncio.sleep(0.2)


flow = app.workflow("at_least")
flow.step(at_least)


@app.task(guarantee="at_most_once")
async def at_most(number: int, ctx: Context) -> None:
    note("at_most", number, ctx.token)
    await asyncio.sleep(0.2)


@app.task(guarantee="exactly_once")
async def exactly(number: int, ctx: Context) -> None:
    note("exactly", number, ctx.token)
    await ctx.connection.execute("insert into public.fault_effect (number) values ($1)", number)
    await asyncio.sleep(0.2)


@app.task(guarantee="exactly_once")
def exactly_in_a_child(number: int, ctx: SyncContext) -> None:
    note("child", number, ctx.token)
    ctx.connection.execute("insert into public.fault_effect (number) values (%s)", [number])


def breaks(number: int) -> int:
    """How many rounds of a large workflow this step fails in."""
    return next(
        (rounds for each, rounds in ((1999, 3), (1499, 2), (701, 1)) if number % each == 7), 0
    )


def _leg(number: int) -> None:
    mended = JOURNAL.with_name("mended")
    if (len(mended.read_bytes()) if mended.exists() else 0) < breaks(number):
        raise ValueError("not in this round")


@app.task(retry=Retry(max_attempts=2, base=0.05))
async def leg(number: int, ctx: Context) -> None:
    note("begun", number, ctx.token)
    _leg(number)
    note("done", number, ctx.token)


@app.task(guarantee="exactly_once", retry=Retry(max_attempts=2, base=0.05))
async def exact_leg(number: int, ctx: Context) -> None:
    note("begun", number, ctx.token)
    await ctx.connection.execute("insert into public.fault_effect (number) values ($1)", number)
    _leg(number)
    note("done", number, ctx.token)


@app.task(retry=Retry(max_attempts=3, base=0.05))
async def wait_for_file(path: str, ctx: Context) -> int:
    note("waiting", 0, ctx.token)
    while not Path(path).exists():
        await asyncio.sleep(0.02)
    return os.getpid()


@app.task(timeout=1, retry=Retry(max_attempts=1))
def spin() -> None:
    while True:
        pass


@app.task(timeout=1, retry=Retry(max_attempts=1))
async def block_the_loop() -> None:
    while True:
        pass


@app.task(retry=Retry(max_attempts=10, base=0.01))
def segfault() -> None:
    ctypes.string_at(0)


@app.task(retry=Retry(max_attempts=20))
async def kill_the_node() -> None:
    os._exit(9)


@app.task
def double(number: int) -> int:
    return 2 * number


@app.task
async def which_process() -> int:
    return os.getpid()


async def begun(kind: str, number: int) -> int:
    note(kind, number, 0)
    await asyncio.sleep(0.05)
    return number


@app.durable
async def journey(ctx: DurableContext, number: int) -> list[int]:
    """Steps, calls and a sleep, one after the other and at the same time."""
    first = [await ctx.step(begun, "step", number * 10 + place) for place in range(3)]
    await ctx.sleep(1.2)
    calls = await ctx.gather(*(ctx.call(at_least, 1000 + number * 10 + n) for n in range(2)))
    last = await ctx.step(begun, "step", number * 10 + 9)
    return [*first, len(calls), last]
