"""Tasks that fail, hang and give signs of life, in every runner. Imported by child processes too."""

from __future__ import annotations

import asyncio
import math
import os
import time
from pathlib import Path

from rota import App, Context, Retry, SyncContext
from rota.context import JobInfo

app = App()

TWICE = Retry(max_attempts=2, base=0.01, jitter=0)


def fail(runner: str) -> None:
    raise ValueError(f"no luck in the {runner}")


@app.task(retry=TWICE)
async def fail_on_the_loop() -> None:
    await asyncio.sleep(0)
    fail("loop")


@app.task(retry=TWICE, runner="thread")
def fail_in_a_thread() -> None:
    fail("thread")


@app.task(retry=TWICE)
def fail_in_a_child() -> None:
    fail("child")


@app.task(retry=Retry(max_attempts=1))
def die() -> None:
    os._exit(3)


# -- signs of life

ONCE = Retry(max_attempts=1)
PATIENCE = 3.0  # seconds that those who give signs of life may be held up by a busy machine


@app.task(heartbeat_timeout=0.3, retry=ONCE)
async def silent_on_the_loop() -> None:
    while True:
        print("printing is no sign of life")
        await asyncio.sleep(0.05)


@app.task(heartbeat_timeout=0.3, retry=ONCE)
async def blocking_on_the_loop() -> None:
    while True:
        time.sleep(0.05)  # noqa: ASYNC251 - it blocks on purpose


@app.task(heartbeat_timeout=0.3, retry=ONCE, runner="thread")
def silent_in_a_thread() -> None:
    while True:
        print("printing is no sign of life")
        time.sleep(0.05)


@app.task(heartbeat_timeout=0.3, retry=ONCE)
def silent_in_a_child() -> None:
    while True:
        print("printing is no sign of life")
        time.sleep(0.05)


def lively(ctx: Context | SyncContext, how: str) -> None:
    if how == "heartbeat":
        ctx.heartbeat()
    else:
        ctx.progress(1)


@app.task(heartbeat_timeout=PATIENCE, retry=ONCE)
async def lively_on_the_loop(how: str, ctx: Context) -> None:
    end = time.monotonic() + PATIENCE + 0.5
    while time.monotonic() < end:
        lively(ctx, how)
        await asyncio.sleep(0.05)


@app.task(heartbeat_timeout=PATIENCE, retry=ONCE, runner="thread")
def lively_in_a_thread(how: str, ctx: SyncContext) -> None:
    end = time.monotonic() + PATIENCE + 0.5
    while time.monotonic() < end:
        lively(ctx, how)
        time.sleep(0.05)


@app.task(heartbeat_timeout=PATIENCE, retry=ONCE)
def lively_in_a_child(how: str, ctx: SyncContext) -> None:
    end = time.monotonic() + PATIENCE + 0.5
    while time.monotonic() < end:
        lively(ctx, how)
        time.sleep(0.05)


# -- without a timeout


@app.task(retry=ONCE)
async def endless_on_the_loop() -> None:
    await asyncio.Event().wait()


@app.task(retry=ONCE, runner="thread")
def endless_in_a_thread() -> None:
    while True:
        time.sleep(0.05)


@app.task(retry=ONCE)
def endless_in_a_child() -> None:
    time.sleep(3600)


@app.task(retry=ONCE, timeout=math.inf)
async def unlimited(seconds: float) -> None:
    await asyncio.sleep(seconds)


@app.on_error
def tell(job: JobInfo, error: BaseException) -> None:
    if path := os.environ.get("ROTA_TEST_HOOK"):
        with Path(path).open("a") as file:
            file.write(f"{os.getpid()} {job.id} {job.attempt} {type(error).__name__}: {error}\n")
        raise SystemExit("a hook that fails")
