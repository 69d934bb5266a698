"""What the cluster does while it is broken: tasks of each guarantee, tasks that are odd or hang, and
twenty schedules.

Every handler writes down that it began and how it ended, to a file of its process: one system call a
line, so that what a killed process wrote is whole. The application's own tables are in Rota's schema:
`app_effect`, a row per effect of an exactly_once job, and `app_guarded`, whose rows remember the token
that wrote them and refuse a lower one.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import select
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Literal

import asyncpg

from proof import flows, functions, hung, keyed, maps, odd, quotas, shares, unique
from proof.history import (
    ACCEPTED,
    FAILED,
    INTERRUPTED,
    OK,
    REFUSED,
    Beat,
    Member,
    Recorder,
    SchedulePromise,
    Sight,
    TaskPromise,
)
from proof.owners import OWN_SETTINGS
from rota import All, App, Context, Latest, Retry, SyncContext
from rota.core.time.schedule import CatchUp, NoCatchUp
from rota.model import Guarantee

app = App()

SCHEMA = app.settings.schema
TABLES = f"""
create table if not exists {SCHEMA}.app_effect (job uuid not null, token bigint not null);
create table if not exists {SCHEMA}.app_guarded
    (job uuid primary key, token bigint not null, writes int not null default 1);
"""

_EFFECT = f"insert into {SCHEMA}.app_effect (job, token) values ($1, $2)"

_NODE = os.environ.get("NEMESIS_NODE", "here")
_recorders: dict[int, Recorder] = {}


def _journal() -> Recorder:
    pid = os.getpid()
    if pid not in _recorders:
        folder = Path(os.environ["NEMESIS_FOLDER"])
        _recorders[pid] = Recorder(folder, f"journal-{_NODE}-{pid}")
    return _recorders[pid]


def _note(ctx: Context | SyncContext, event: str, outcome: str = "", order: int = 0) -> None:
    job, occurrence = ctx.job, ctx.job.headers.get("occurrence")
    schedule = occurrence["schedule"] if occurrence else None
    line = Beat(time.monotonic(), event, str(job.id), job.task, job.token, job.attempt, _NODE,
                schedule, outcome, order)  # type: ignore[arg-type] # fmt: skip
    _journal().write(line)


@contextmanager
def _noted(ctx: Context | SyncContext) -> Iterator[None]:
    """The handler's own record of one attempt."""
    _note(ctx, "start")
    try:
        yield
    except Exception:
        _note(ctx, "end", FAILED)
        raise
    except BaseException:  # asked to stop
        _note(ctx, "end", INTERRUPTED)
        raise
    _note(ctx, "end", OK)


def _nap(seconds: float) -> None:
    """time.sleep() fails under libfaketime 0.9.10, whose absolute sleeps are broken."""
    select.select([], [], [], seconds)


_FEW = Retry(max_attempts=3, base=0.2)
_SOME = Retry(max_attempts=8, base=0.2)


# -- at least once


@app.task(retry=_SOME)
async def quick(number: int, ctx: Context) -> None:
    with _noted(ctx):
        pass


@app.task(retry=_SOME)
def quick_plain(number: int, ctx: SyncContext) -> None:
    with _noted(ctx):
        pass


@app.task(retry=_SOME)
async def shaky(number: int, ctx: Context) -> None:
    """Fails twice at most."""
    with _noted(ctx):
        if ctx.attempt <= number % 3:
            raise ValueError("not yet")


@app.task(retry=_SOME)
def shaky_plain(number: int, ctx: SyncContext) -> None:
    with _noted(ctx):
        if ctx.attempt <= number % 3:
            raise ValueError("not yet")


@app.task(retry=_FEW)
async def doomed(number: int, ctx: Context) -> None:
    with _noted(ctx):
        raise ValueError("never")


@app.task(retry=_SOME)
async def long(number: int, ctx: Context) -> None:
    """Some of them longer than a lease."""
    with _noted(ctx):
        await asyncio.sleep(0.5 + number % 5)


@app.task(retry=_SOME)
def long_plain(number: int, ctx: SyncContext) -> None:
    with _noted(ctx):
        _nap(0.3 + number % 2)


# -- at most once


@app.task(guarantee="at_most_once")
async def at_most(number: int, ctx: Context) -> None:
    with _noted(ctx):
        await asyncio.sleep(0.02)


@app.task(guarantee="at_most_once")
def at_most_plain(number: int, ctx: SyncContext) -> None:
    with _noted(ctx):
        pass


# -- exactly once


@app.task(guarantee="exactly_once", retry=_SOME)
async def exact(number: int, ctx: Context) -> None:
    with _noted(ctx):
        await ctx.connection.execute(_EFFECT, ctx.job.id, ctx.token)
        if number % 20 == 0:
            await asyncio.sleep(0.5)


@app.task(guarantee="exactly_once", retry=_SOME)
def exact_plain(number: int, ctx: SyncContext) -> None:
    with _noted(ctx):
        ctx.connection.execute(
            f"insert into {SCHEMA}.app_effect (job, token) values (%s, %s)",
            [ctx.job.id, ctx.token],
        )
        if number % 20 == 0:
            _nap(0.3)


# -- the application's own table, guarded by the token


_pools: dict[Any, asyncpg.Pool[Any]] = {}


@asynccontextmanager
async def _own_connection() -> AsyncIterator[Any]:
    loop = asyncio.get_running_loop()
    if loop not in _pools:
        _pools[loop] = await asyncpg.create_pool(
            app.settings.database_url, min_size=0, max_size=3, timeout=5, command_timeout=5,
            server_settings=OWN_SETTINGS,
        )  # fmt: skip
    async with _pools[loop].acquire(timeout=5) as connection:
        yield connection


@app.task(retry=_SOME)
async def guarded(number: int, ctx: Context) -> None:
    """An old attempt that wakes up late must not overwrite what a newer one wrote."""
    with _noted(ctx):
        if number % 10 == 0:
            await asyncio.sleep(1.0)
        async with _own_connection() as connection:
            order = await connection.fetchval(
                f"insert into {SCHEMA}.app_guarded as g (job, token) values ($1, $2)"
                " on conflict (job) do update set token = excluded.token, writes = g.writes + 1"
                " where g.token <= excluded.token returning writes",
                ctx.job.id, ctx.token,
            )  # fmt: skip
        _note(ctx, "guarded", ACCEPTED if order else REFUSED, order or 0)


# -- what schedules run


@app.task(retry=_SOME)
async def tick(number: int, ctx: Context) -> None:
    with _noted(ctx):
        pass


@app.task(retry=_SOME)
async def slow_tick(number: int, ctx: Context) -> None:
    """Longer than the pause of the schedules that run it: they overlap."""
    with _noted(ctx):
        await asyncio.sleep(2.3)


@app.task(retry=_SOME)
def plain_tick(number: int, ctx: SyncContext) -> None:
    with _noted(ctx):
        _nap(0.05)


@app.task(guarantee="exactly_once", retry=_SOME)
async def exact_tick(number: int, ctx: Context) -> None:
    with _noted(ctx):
        await ctx.connection.execute(_EFFECT, ctx.job.id, ctx.token)


SCHEDULED = ("tick", "slow_tick", "exact_tick", "plain_tick")


# -- what nobody thought of


async def _async_nap(most: float) -> None:
    await asyncio.sleep(random.uniform(0, most))


odd.add_tasks(app, _noted, lambda ctx: _note(ctx, "effect"), _async_nap, "default")


@app.task(retry=_FEW)
def odd_value_plain(number: int, ctx: SyncContext) -> Any:
    with _noted(ctx):
        return odd.value(number)


@app.task(retry=_FEW)
def odd_error_plain(number: int, ctx: SyncContext) -> None:
    with _noted(ctx):
        odd.complain(number)


ODD = ("odd_value", "odd_value_plain", "odd_error", "odd_error_plain", "odd_delay", "careful")


# -- what hangs

# A busy machine may hold a handler up for a while between two signs of life.
LIMITS = hung.Limits(silence=2.5, timeout=3.0, run_time=13.0)
_LIMIT_OF = LIMITS.of_tasks() | {"silent_plain": LIMITS.silence, "overdue_plain": LIMITS.timeout}

hung.add_tasks(app, _noted, _async_nap, _EFFECT, LIMITS)


def _hang() -> None:
    """Until it is stopped. Whoever doesn't listen is killed, and writes no end."""
    while True:
        _nap(0.1)


@app.task(retry=_SOME, heartbeat_timeout=LIMITS.silence)
def silent_plain(number: int, ctx: SyncContext) -> None:
    with _noted(ctx):
        if ctx.attempt <= number % 2:
            _hang()


@app.task(retry=_SOME, timeout=LIMITS.timeout)
def overdue_plain(number: int, ctx: SyncContext) -> None:
    with _noted(ctx):
        if ctx.attempt <= number % 2:
            _hang()


# -- what waits for others of its kind

for _module in (keyed, shares, unique, quotas):
    _module.add_tasks(app, _noted, _async_nap)

_members: dict[int, Recorder] = {}


def _note_member(member: Member) -> None:
    pid = os.getpid()
    if pid not in _members:
        _members[pid] = Recorder(Path(os.environ["NEMESIS_FOLDER"]), f"members-{_NODE}-{pid}")
    _members[pid].write(member)


maps.add_tasks(
    app, _noted, _note_member, time.monotonic, lambda: _NODE, _async_nap, random.random
)  # fmt: skip


# -- workflows and durable functions

flows.add_tasks(app, _noted, _async_nap, _EFFECT, random.random)


_sights: dict[int, Recorder] = {}
_serials = itertools.count(1)
# A file that is made when the new code is deployed. Each node has it a while later.
DEPLOYED = "deployed"
_LATER = random.Random(_NODE).uniform(0, 10)


def _see(sight: Sight) -> None:
    pid = os.getpid()
    if pid not in _sights:
        _sights[pid] = Recorder(Path(os.environ["NEMESIS_FOLDER"]), f"functions-{_NODE}-{pid}")
    _sights[pid].write(sight)


def _code() -> int:
    try:
        made = (Path(os.environ["NEMESIS_FOLDER"]) / DEPLOYED).read_text()
    except OSError:
        return 1
    return 2 if made and time.monotonic() > float(made) + _LATER else 1


def _serial() -> str:
    return f"{_NODE}-{os.getpid()}-value-{next(_serials)}"


functions.add_tasks(
    app, _noted, _async_nap, _EFFECT,
    functions.Recording(_see, time.monotonic, lambda: _NODE, _code, random.random, _serial),
)  # fmt: skip


HUNG = tuple(_LIMIT_OF)
_HANGING = frozenset(HUNG) - {"lively"}
_ENDS = {"doomed": "failed", "odd_error_plain": "any", **odd.ENDS, **hung.ENDS, **flows.ENDS,
         **functions.ENDS, **maps.ENDS}  # fmt: skip


def promises() -> dict[str, TaskPromise]:
    return {
        name: TaskPromise(
            Guarantee(task.options_.guarantee).label,
            task.options_.retry.max_attempts,
            _ENDS.get(name, "succeeded"),  # type: ignore[arg-type]
            _LIMIT_OF.get(name),
            name in _HANGING,
        )
        for name, task in app.tasks.items()
    }


Overlap = Literal["allow", "skip", "queue", "kill"]
CATCH_UP: dict[str, CatchUp] = {"all": All(), "latest": Latest(), "none": NoCatchUp}


def schedule_promises() -> list[SchedulePromise]:
    """Every pace with every overlap policy; the catch-up policies take turns."""
    overlaps: tuple[Overlap, ...] = ("allow", "skip", "queue", "kill")
    catch_ups: tuple[Literal["all", "latest", "none"], ...] = ("all", "latest", "none")
    made: list[SchedulePromise] = []
    for every in (1, 2, 3, 5, 10):
        for overlap in overlaps:
            number = len(made)
            # Shifted by one each round, so that each task meets each policy.
            task, catch_up = SCHEDULED[(number + number // 4) % 4], catch_ups[number % 3]
            made.append(
                SchedulePromise(f"every-{every}s-{overlap}", task, every, overlap, catch_up)
            )
    return made
