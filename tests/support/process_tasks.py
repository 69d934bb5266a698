"""Tasks for the tests of the process runner, in a stand-in for an app.

Run as a script, it is the parent of one busy child, for tests that kill the parent.
"""

import asyncio
import collections
import ctypes
import itertools
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from typing import Any

from pydantic import BaseModel, model_serializer

from rota.errors import Fatal, JobStopped, RetryAfter


class Task:
    takes_context = True

    def __init__(self, function):
        self.function = function

    def call(self, payload, ctx):
        return self.function(ctx, **json.loads(payload))


class SlowToEncode(BaseModel):
    ctx: Any

    @model_serializer
    def encode_slowly(self):
        self.ctx.progress(0)
        while not self.ctx.cancelled:
            pass
        time.sleep(0.2)  # long enough for a signal
        return "encoded"


class App:
    def __init__(self):
        self.tasks = {}

    def task(self, function):
        self.tasks[function.__name__] = Task(function)
        return function


app = App()


class UnspeakableError(Exception):
    def __str__(self):
        raise RuntimeError("no words")


class OwnError(LookupError):
    pass


@app.task
def echo(ctx, value=None):
    return value


@app.task
def describe(ctx):
    job = ctx.job
    info = [str(job.id), job.task, job.attempt, job.max_attempts, job.token]
    return [*info, str(job.due_at), job.key, job.headers, ctx.cancelled]


@app.task
def raise_own(ctx):
    raise OwnError("nothing there \0 \ud800")


@app.task
def raise_at_length(ctx):
    raise ValueError("x" * 100_000)


@app.task
def raise_unspeakable(ctx):
    raise UnspeakableError


@app.task
def raise_fatal(ctx):
    raise Fatal("never again")


@app.task
def raise_retry_after(ctx):
    raise RetryAfter(42, "busy")


@app.task
def leave(ctx, how):
    if how == "exit":
        sys.exit(3)
    raise {"interrupt": KeyboardInterrupt, "memory": MemoryError}[how]("bye")


@app.task
def spin(ctx):
    ctx.progress(0)
    while True:
        pass


@app.task
def sleep(ctx):
    ctx.progress(0)
    time.sleep(1000)


@app.task
def wait_for_node(ctx, value=None):
    """Runs until the test answers."""
    ctx.progress(0)
    ctx._channel.call("wait", b"")
    return value


@app.task
def poll_cancelled(ctx):
    """Swallows the stop, and ends by itself."""
    try:
        ctx.progress(0)
        time.sleep(1000)
    except JobStopped:
        return ctx.cancelled


@app.task
def clean_up(ctx, path):
    try:
        ctx.progress(0)
        time.sleep(1000)
    except Exception:  # noqa: BLE001
        return "swallowed"
    finally:
        with open(path, "w") as file:
            file.write("cleaned")


@app.task
def stubborn(ctx):
    while True:
        try:
            ctx.progress(0)
            time.sleep(1000)
        except BaseException:  # noqa: BLE001
            pass


def loop_in_c():
    """Forever, with the interpreter's lock held, and without a look at signals."""
    collections.deque(itertools.repeat(None), maxlen=0)


@app.task
def hold_the_interpreter(ctx):
    ctx.progress(0)
    loop_in_c()


@app.task
def segfault(ctx):
    ctypes.string_at(0)


@app.task
def exit_at_once(ctx, status):
    os._exit(status)


@app.task
def kill_own_process(ctx):
    os.kill(os.getpid(), signal.SIGKILL)


@app.task
def start_grandchild(ctx, then):
    grandchild = subprocess.Popen(["sleep", "1000"])
    ctx.progress(grandchild.pid, os.getpid())
    if then == "hold":
        loop_in_c()
    elif then == "exit":
        os._exit(1)
    elif then == "fork":  # behind Python's back, so that it keeps all that its parent had open
        if ctypes.PyDLL(None).fork() == 0:
            time.sleep(1000)
        os._exit(1)
    time.sleep(1000)


@app.task
def terminate_fork(ctx):
    """A forked process must die of a SIGTERM as any other."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, b"!")
        time.sleep(1000)
    os.read(reader, 1)
    os.kill(pid, signal.SIGTERM)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@app.task
def print_child_pid(ctx):
    return os.getpid()


@app.task
def exit_or_echo(ctx, value=None, exits=False):
    if exits:
        os._exit(1)
    return value


@app.task
def wait_or_echo(ctx, value=None, waits=False):
    if waits:
        ctx._channel.call("wait", b"")
    return value


@app.task
def return_bytes(ctx, count):
    return "x" * count


@app.task
def return_slow(ctx):
    return SlowToEncode(ctx=ctx)


@app.task
def return_object(ctx):
    return object()


@app.task
def say_much(ctx, times):
    for done in range(times):
        ctx.progress(done, times, "on")


@app.task
def shout(ctx):
    while True:
        ctx.progress(0, message="x" * 900_000)


@app.task
def ask(ctx, name):
    return ctx._channel.call(name, b"question").decode()


@app.task
def ask_in_vain(ctx, name):
    try:
        ctx._channel.call(name, b"")
    except Exception as error:  # noqa: BLE001
        return [type(error).__name__, str(error)]


@app.task
def send_nonsense(ctx):
    ctx._channel._child._work.sendall(b"\xff" * 100)
    time.sleep(1000)


@app.task
def work_a_moment(ctx, seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass
    return "done"


async def be_a_parent() -> None:
    from rota.config import Settings
    from rota.runtime.work import Work
    from rota.worker.runners.base import NodeParts
    from rota.worker.runners.process import ProcessRunner
    from rota.worker.runners.reference import AppReference

    class Desk:
        def report_progress(self, work, progress):
            told = json.loads(progress)
            print(told["done"], told["total"], flush=True)

    reference = AppReference(None, __file__, "app")
    parts = NodeParts(Settings(), lambda work, outcome: None, Desk())
    runner = ProcessRunner(reference, 1, parts)
    await runner.start()
    payload = json.dumps({"then": sys.argv[1]}).encode()
    runner.run(Work(uuid.uuid4(), "start_grandchild", payload, 1, 1, 1))
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(be_a_parent())
