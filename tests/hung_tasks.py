"""Tasks that fail, hang and give signs of life, in every runner. Imported by child processes too."""

from __future__ import annotations

import asyncio
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


@app.on_error
def tell(job: JobInfo, error: BaseException) -> None:
    if path := os.environ.get("ROTA_TEST_HOOK"):
        with Path(path).open("a") as file:
            file.write(f"{os.getpid()} {job.id} {job.attempt} {type(error).__name__}: {error}\n")
        raise SystemExit("a hook that fails")


__all__ = ["Context", "SyncContext", "app", "time"]
