"""Tasks that print and log, in every runner."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import sys
import threading
import time
from pathlib import Path

from rota import App, Context, Retry, SyncContext
from rota.commands import enable_commands

app = App(processes=1)
enable_commands(app)
log = logging.getLogger("shop")


def talk(name: str, number: int) -> None:
    print(f"{name} {number} prints")
    print(f"{name} {number} complains", file=sys.stderr)
    log.warning("%s %d warns", name, number)


@app.task
async def on_the_loop(number: int) -> None:
    for step in range(3):
        print(f"job {number} ", end="")
        await asyncio.sleep(0.01)
        print(f"step {step}")
    await asyncio.to_thread(print, f"job {number} from a thread")


@app.task
async def talk_on_the_loop(number: int) -> None:
    talk("loop", number)


@app.task(runner="thread")
def talk_in_a_thread(number: int) -> None:
    talk("thread", number)


@app.task
def talk_in_a_child(number: int) -> None:
    talk("child", number)
    thread = threading.Thread(target=print, args=(f"child {number} has a thread",))
    thread.start()
    thread.join()
    print("no end", end="")


@app.task
async def say_odd_things() -> None:
    print("NUL \0, a lone \ud800 surrogate, ünïcode")
    print("10%\r50%\r100%\r\ndone")
    sys.stdout.write("x" * 100_000 + "\n")
    sys.stdout.writelines(["after ", "it\n"])


@app.task
async def report_oddly(ctx: Context) -> None:
    ctx.progress(2.0, 3.0, "NUL \0, \ud800")


@app.task
def report_oddly_in_a_child(ctx: SyncContext) -> None:
    ctx.progress(2.0, 3.0, "NUL \0, \ud800")


@app.task
async def flood(lines: int) -> None:
    for number in range(lines):
        print(f"line {number}")


@app.task
def flood_in_a_child(lines: int) -> None:
    for number in range(lines):
        print(f"line {number}")


@app.task(retry=Retry(max_attempts=2, base=0.01))
async def fail_once(ctx: Context) -> None:
    print(f"attempt {ctx.attempt}")
    try:
        1 / 0  # noqa: B018
    except ZeroDivisionError:
        log.exception("it went wrong")
        if ctx.attempt == 1:
            raise


@app.task(retry=Retry(max_attempts=1))
def die_talking() -> None:
    print("my last words")
    ctypes.string_at(0)


@app.task
async def talk_until(path: str) -> None:
    print("begun")
    while not Path(path).exists():
        await asyncio.sleep(0.01)
    print("ended")


@app.task
async def block_the_loop_until(go: str, path: str) -> None:
    Path(go).touch()
    while not Path(path).exists():
        time.sleep(0.01)  # noqa: ASYNC251 - that it blocks is the point


@app.task
def print_much_then_touch(begun: str, go: str, path: str, lines: int) -> None:
    Path(begun).touch()
    while not Path(go).exists():
        time.sleep(0.001)
    for number in range(lines):
        print(f"{number} {'x' * 1000}")
    Path(path).touch()


@app.task
def print_forever(path: str, ctx: SyncContext) -> None:
    Path(path).touch()
    while True:
        print("still here", os.getpid())
