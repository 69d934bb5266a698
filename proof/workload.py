"""A small cluster in real processes for the failover and the sweep: its tasks, its nodes, its clients.

Every handler writes down that it began and how it ended (see `proof.history`), one system call a line.
Effects go to a table of the application's own, `app_effect`, in Rota's schema.

Nodes are started as people start them, with `rota start`. A client makes ids and writes "asked" before
it sends anything; where no answer comes it writes "unknown" and repeats the same jobs under the same ids
until it knows.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec

from proof.history import INTERRUPTED, OK, Beat, Recorder, Submission, TaskPromise
from rota import App, Context, Retry, SyncContext
from rota.errors import StoreUnavailable
from rota.lib.ids import new_ids
from rota.model import Guarantee
from rota.store.bulk import BulkStore
from rota.store.rows import Bulk, NewJob, Submitted

app = App()

FOLDER, NAME = "WORKLOAD_FOLDER", "WORKLOAD_NAME"
EFFECTS = (
    "create table if not exists {schema}.app_effect (job uuid not null, token bigint not null)"
)

_recorders: dict[int, Recorder] = {}


def _journal() -> Recorder:
    pid = os.getpid()
    if pid not in _recorders:
        name = f"journal-{os.environ[NAME]}-{pid}"
        _recorders[pid] = Recorder(Path(os.environ[FOLDER]), name)
    return _recorders[pid]


@contextmanager
def _noted(ctx: Context | SyncContext) -> Iterator[None]:
    """The handler's own record of one attempt."""
    _note(ctx, "start")
    try:
        yield
    except Exception:
        _note(ctx, "end", "failed")
        raise
    except BaseException:  # asked to stop
        _note(ctx, "end", INTERRUPTED)
        raise
    _note(ctx, "end", OK)


def _note(
    ctx: Context | SyncContext, event: Literal["start", "end", "effect"], outcome: str = ""
) -> None:
    job, occurrence = ctx.job, ctx.job.headers.get("occurrence")
    schedule = occurrence["schedule"] if occurrence else None
    _journal().write(
        Beat(time.monotonic(), event, str(job.id), job.task, job.token, job.attempt,
             os.environ[NAME], schedule, outcome)
    )  # fmt: skip


# -- tasks

_PATIENT = Retry(max_attempts=20, base=0.05, cap=0.5)


@app.task(retry=_PATIENT)
async def plain(number: int, ctx: Context) -> None:
    with _noted(ctx):
        await asyncio.sleep(0.1)


@app.task(retry=_PATIENT)
def in_child(number: int, ctx: SyncContext) -> None:
    with _noted(ctx):
        pass


@app.task(retry=_PATIENT)
async def shaky(number: int, ctx: Context) -> None:
    """Fails the first time."""
    with _noted(ctx):
        ctx.progress(1, 2)
        if ctx.attempt == 1:
            raise ValueError("not yet")


@app.task(retry=Retry(max_attempts=1))
async def doomed(number: int, ctx: Context) -> None:
    with _noted(ctx):
        raise ValueError("never")


@app.task(guarantee="at_most_once")
async def at_most(number: int, ctx: Context) -> None:
    with _noted(ctx):
        await asyncio.sleep(0.01)


@app.task(guarantee="exactly_once", retry=_PATIENT)
async def exact(number: int, ctx: Context) -> None:
    with _noted(ctx):
        await ctx.connection.execute(
            f"insert into {app.settings.schema}.app_effect (job, token) values ($1, $2)",
            ctx.job.id, ctx.token,
        )  # fmt: skip


@app.task(guarantee="exactly_once", retry=_PATIENT)
def exact_child(number: int, ctx: SyncContext) -> None:
    with _noted(ctx):
        ctx.connection.execute(
            f"insert into {app.settings.schema}.app_effect (job, token) values (%s, %s)",
            [ctx.job.id, ctx.token],
        )


@app.task(retry=_PATIENT)
async def careful(number: int, ctx: Context) -> None:
    """A side effect once for all attempts; half of them go wrong before it happens, at first."""

    def effect() -> None:
        if number % 2 == 0 and ctx.attempt == 1:
            raise ValueError("not yet")
        _note(ctx, "effect")

    with _noted(ctx):
        await ctx.once(f"careful-{ctx.job.id}", effect)


@app.task(retry=_PATIENT)
async def waiting_tick(number: int, ctx: Context) -> None:
    """Longer than the pause of its schedule: they wait for each other."""
    with _noted(ctx):
        await asyncio.sleep(1.1)


@app.task(retry=_PATIENT)
async def tick(number: int, ctx: Context) -> None:
    with _noted(ctx):
        pass


@app.task(guarantee="exactly_once", retry=_PATIENT)
async def exact_tick(number: int, ctx: Context) -> None:
    await exact.function(number, ctx)


MIX = {"plain": 6, "in_child": 2, "shaky": 2, "doomed": 1, "at_most": 3, "exact": 3,
       "exact_child": 2, "careful": 2}  # fmt: skip


# A side effect that was begun when the line was cut may have happened: then `once` refuses to repeat it.
_ENDS = {"doomed": "failed", "careful": "any"}


def promises() -> dict[str, TaskPromise]:
    """What the checker holds the cluster to."""
    return {
        name: TaskPromise(
            Guarantee(task.options_.guarantee).label,
            task.options_.retry.max_attempts,
            _ENDS.get(name, "succeeded"),  # type: ignore[arg-type]
        )
        for name, task in app.tasks.items()
    }


# -- clients


class Client:
    def __init__(self, store: BulkStore, recorder: Recorder, chance: random.Random) -> None:
        self._store = store
        self._recorder = recorder
        self._chance = chance
        self._number = 0

    def make(self, count: int, task: str | None = None) -> list[NewJob]:
        return [self._job(id, task) for id in new_ids(count)]

    def _job(self, id: Any, name: str | None) -> NewJob:
        self._number += 1
        name = name or self._chance.choices(list(MIX), list(MIX.values()))[0]
        options = app.tasks[name].options_
        later = name == "plain" and self._chance.random() < 0.2
        return NewJob(
            id=id, namespace=app.settings.namespace, task=name,
            payload=msgspec.Raw(msgspec.json.encode({"number": self._number})),
            queue=options.queue, priority=options.priority,
            guarantee=int(options.guarantee), max_attempts=options.retry.max_attempts,
            delay=round(self._chance.uniform(1.2, 3.0), 3) if later else None,
        )  # fmt: skip

    async def submit(self, jobs: Sequence[NewJob], way: str) -> None:
        self._note_all(jobs, "asked")
        try:
            await self._ask(jobs, way)
        except StoreUnavailable:
            self._note_all(jobs, "unknown")
            await self._repeat(jobs)
        self._note_all(jobs, "acknowledged")

    async def _ask(self, jobs: Sequence[NewJob], way: str) -> None:
        """By one of the ways that an application has."""
        if way == "copy":
            payloads = [bytes(job.payload) for job in jobs]
            await self._store.copy_jobs(Bulk(jobs[0], [job.id for job in jobs], payloads))
        elif way == "atomic":
            await self._store.submit_atomically(jobs)
        else:
            await self._store.submit_jobs(jobs)

    async def _repeat(self, jobs: Sequence[NewJob]) -> list[Submitted]:
        encoded = msgspec.json.encode(jobs).decode()
        while True:
            await asyncio.sleep(self._chance.uniform(0.1, 0.5))
            with contextlib.suppress(StoreUnavailable):
                rows = await self._store.database.fetch("submit_jobs", encoded, True, "own")
                return [Submitted(*row) for row in rows]

    def _note_all(self, jobs: Sequence[NewJob], answer: Any) -> None:
        for job in jobs:
            line = Submission(time.monotonic(), str(job.id), job.task, answer, job.delay or 0.0)
            self._recorder.write(line)


async def offer(rate: float) -> None:
    """So many jobs a second until SIGTERM; then the answers that are still to come are waited for."""
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    recorder = Recorder(Path(os.environ[FOLDER]), "clients")
    store = BulkStore((await app.store()).database)
    client = Client(store, recorder, random.Random(os.environ[NAME]))
    asking: set[asyncio.Task[None]] = set()
    begun, offered, turn = time.monotonic(), 0, 0
    while not stopped.is_set():
        if int((time.monotonic() - begun) * rate) > offered and len(asking) < 20:
            turn += 1
            way = ("several", "alone", "atomic", "copy")[turn % 4]
            count = {"several": 3, "alone": 1, "atomic": 5, "copy": 10}[way]
            jobs = client.make(count, _bulk_task(way, turn))
            offered += len(jobs)
            task = asyncio.create_task(client.submit(jobs, way))
            asking.add(task)
            task.add_done_callback(asking.discard)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopped.wait(), 0.02)
    if asking:
        await asyncio.wait(asking, timeout=30)
    await app.close()


def _bulk_task(way: str, turn: int) -> str | None:
    """A bulk is of one kind; not of `plain`, whose delays differ."""
    names = [name for name in MIX if name != "plain"]
    return names[turn // 4 % len(names)] if way == "copy" else None


# -- processes


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(name)s %(message)s")
    asyncio.run(offer(float(sys.argv[1])))


def client_command(rate: float) -> list[str]:
    return [sys.executable, "-c", "from proof.workload import main; main()", str(rate)]


def node_command(*roles: str) -> list[str]:
    """A node as people start it."""
    rota = [
        sys.executable,
        "-c",
        "from rota.cli import main; main()",
        "start",
        "proof.workload:app",
    ]
    return [*rota, *(part for role in roles for part in ("--role", role))]


def environment(folder: Path, name: str, **settings: Any) -> dict[str, str]:
    path = [str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        **{f"ROTA_{field.upper()}": str(value) for field, value in settings.items()},
        "PYTHONPATH": os.pathsep.join(part for part in path if part),
        FOLDER: str(folder),
        NAME: name,
    }
