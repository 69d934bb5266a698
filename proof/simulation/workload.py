"""What the simulated cluster does: tasks of each guarantee, clients, and schedules of every policy.

Handlers and clients write down what they saw, on the virtual clock, as those of the real nemesis do.
How long a handler takes, and how often it fails, comes from its own process's randomness.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import Any, Literal

from proof import (
    flows,
    functions,
    hung,
    keyed,
    machines,
    maps,
    odd,
    quotas,
    shares,
    sparing,
    unique,
)
from proof.history import (
    ACCEPTED,
    FAILED,
    INTERRUPTED,
    OK,
    REFUSED,
    Beat,
    Member,
    SchedulePromise,
    Sight,
    TaskPromise,
)
from proof.simulation.patches import current
from proof.simulation.template import SCHEMA
from rota import App, Context, Retry, Settings
from rota.model import Guarantee

LIMITS = hung.Limits()

OVERLAPS = ("allow", "skip", "queue", "kill")

SCHEDULED = ("tick", "slow_tick", "slow_tick", "exact_tick")  # what schedules run

_SOME = Retry(max_attempts=8, base=0.3)
_FEW = Retry(max_attempts=3, base=0.2)

_EFFECT = f"insert into {SCHEMA}.app_effect (job, token) values ($1, $2)"
_GUARDED = f"""
insert into {SCHEMA}.app_guarded as g (job, token, writes) values ($1, $2, 1)
on conflict (job) do update set token = excluded.token, writes = g.writes + 1
where g.token <= excluded.token returning writes"""


class Journal:
    """What the handlers of a run wrote down, by process."""

    def __init__(self) -> None:
        self.beats: dict[str, list[Beat]] = {}
        self.sights: dict[str, list[Sight]] = {}  # of durable functions
        self.members: dict[str, list[Member]] = {}  # of maps
        self.inside: dict[str, str] = {}  # runs whose functions are in a step, and their processes
        self.deployed: dict[str, float] = {}  # when a machine got the new code
        self._openings: dict[str, asyncio.Event] = {}  # of runs that somebody waits for
        self._serial = 0

    def note(
        self, ctx: Context, event: Literal["start", "end", "guarded", "effect"], outcome: str = "",
        order: int = 0,
    ) -> None:  # fmt: skip
        job, occurrence, node = ctx.job, ctx.job.headers.get("occurrence"), current().name
        schedule = occurrence["schedule"] if occurrence else None
        at = asyncio.get_running_loop().time()
        beat = Beat(at, event, str(job.id), job.task, job.token, job.attempt, node, schedule,
                    outcome, order)  # fmt: skip
        self.beats.setdefault(node, []).append(beat)

    def see(self, sight: Sight) -> None:
        self.sights.setdefault(sight.node, []).append(sight)
        if sight.event == "open" and sight.run in self._openings:
            self._openings[sight.run].set()
        if sight.event == "try":
            self.inside[sight.run] = sight.node
        elif self.inside.get(sight.run) == sight.node:
            del self.inside[sight.run]

    async def wait_for_opening(self, run: str, seconds: float) -> None:
        """Wait until the function of a run begins anew somewhere, for so long at most."""
        opened = self._openings.setdefault(run, asyncio.Event())
        with suppress(TimeoutError):
            await asyncio.wait_for(opened.wait(), seconds)
        self._openings.pop(run, None)

    def count(self, member: Member) -> None:
        self.members.setdefault(member.node, []).append(member)

    def serial(self) -> str:
        self._serial += 1
        return f"value-{self._serial}"

    def code(self) -> int:
        now, machine = asyncio.get_running_loop().time(), current().name.partition(".")[0]
        return 2 if now >= self.deployed.get(machine, now) else 1

    @contextmanager
    def attempt(self, ctx: Context) -> Iterator[None]:
        self.note(ctx, "start")
        try:
            yield
        except Exception:
            self.note(ctx, "end", FAILED)
            raise
        except BaseException:  # asked to stop
            self.note(ctx, "end", INTERRUPTED)
            raise
        self.note(ctx, "end", OK)


async def _nap(most: float) -> None:
    await asyncio.sleep(current().random.uniform(0, most))


# The tasks of moves that need no more than this.
_TASKS = {
    "keys": keyed, "shares": shares, "unique": unique, "quotas": quotas, "resources": machines,
}  # fmt: skip


def make_app(settings: Settings, journal: Journal, moves: Collection[str]) -> App:
    """An app of its own for each process, as in the real world."""
    app = App(settings)
    _add_plain_tasks(app, journal)
    _add_guaranteed_tasks(app, journal)
    _add_scheduled_tasks(app, journal)
    odd.add_tasks(app, journal.attempt, lambda ctx: journal.note(ctx, "effect"), _nap, "other")
    if "hung" in moves:  # others register tasks and limits, which are statements of their own
        hung.add_tasks(app, journal.attempt, _nap, _EFFECT, LIMITS)
    for move, tasks in _TASKS.items():
        if move in moves:
            tasks.add_tasks(app, journal.attempt, _nap)
    if "maps" in moves:
        maps.add_tasks(
            app, journal.attempt, journal.count, lambda: asyncio.get_running_loop().time(),
            lambda: current().name, _nap, lambda: current().random.random(),
        )  # fmt: skip
    if "history" in moves:
        sparing.add_tasks(
            app, journal.count, lambda: asyncio.get_running_loop().time(), lambda: current().name,
            _nap, _EFFECT,
        )  # fmt: skip
    if "workflows" in moves:
        flows.add_tasks(app, journal.attempt, _nap, _EFFECT, lambda: current().random.random())
    if "functions" in moves:
        records = functions.Recording(
            journal.see, lambda: asyncio.get_running_loop().time(), lambda: current().name,
            journal.code, lambda: current().random.random(), journal.serial,
        )  # fmt: skip
        functions.add_tasks(app, journal.attempt, _nap, _EFFECT, records)
    return app


def _add_plain_tasks(app: App, journal: Journal) -> None:
    @app.task(retry=_SOME)
    async def quick(number: int, ctx: Context) -> None:
        with journal.attempt(ctx):
            await _nap(0.05)

    @app.task(retry=_SOME, queue="other")
    async def shaky(number: int, ctx: Context) -> None:
        """Fails a few times."""
        with journal.attempt(ctx):
            await _nap(0.3)
            if ctx.attempt <= number % 6:
                raise ValueError("not yet")

    @app.task(retry=_FEW)
    async def doomed(number: int, ctx: Context) -> None:
        with journal.attempt(ctx):
            await _nap(0.2)
            raise ValueError("never")

    @app.task(retry=_SOME, queue="other")
    async def long(number: int, ctx: Context) -> None:
        """Some of them longer than a lease."""
        with journal.attempt(ctx):
            await _nap(12)

    @app.task(retry=_SOME)
    async def stubborn(number: int, ctx: Context) -> None:
        """Doesn't listen when it is told to stop, for a while."""
        with journal.attempt(ctx):
            deaf_until = asyncio.get_running_loop().time() + current().random.uniform(0, 6)
            while (left := deaf_until - asyncio.get_running_loop().time()) > 0:
                try:
                    await asyncio.sleep(left)
                except asyncio.CancelledError:
                    continue


def _add_guaranteed_tasks(app: App, journal: Journal) -> None:
    @app.task(guarantee="at_most_once")
    async def at_most(number: int, ctx: Context) -> None:
        with journal.attempt(ctx):
            await _nap(8 if number % 2 == 0 else 0.05)

    @app.task(guarantee="exactly_once", retry=_SOME)
    async def exact(number: int, ctx: Context) -> None:
        with journal.attempt(ctx):
            await _nap(0.5)
            await ctx.connection.execute(_EFFECT, ctx.job.id, ctx.token)
            await _nap(5 if number % 4 == 0 else 0.1)

    @app.task(retry=_SOME, queue="other")
    async def guarded(number: int, ctx: Context) -> None:
        """An old attempt that wakes up late must not overwrite what a newer one wrote."""
        with journal.attempt(ctx):
            await _nap(3 if number % 3 == 0 else 0.1)
            async with (await app.store()).database.connection() as connection:
                order = await connection.fetchval(_GUARDED, ctx.job.id, ctx.token)
            journal.note(ctx, "guarded", ACCEPTED if order else REFUSED, order or 0)


def _add_scheduled_tasks(app: App, journal: Journal) -> None:
    @app.task(retry=_SOME)
    async def tick(number: int, ctx: Context) -> None:
        with journal.attempt(ctx):
            await _nap(0.2)

    @app.task(retry=_SOME)
    async def slow_tick(number: int, ctx: Context) -> None:
        """Often longer than the pause of the schedules that run it: they overlap."""
        with journal.attempt(ctx):
            await _nap(2 + number)

    @app.task(guarantee="exactly_once", retry=_SOME)
    async def exact_tick(number: int, ctx: Context) -> None:
        with journal.attempt(ctx):
            await ctx.connection.execute(_EFFECT, ctx.job.id, ctx.token)
            await _nap(0.3)


_ENDS = {"doomed": "failed", **odd.ENDS, **hung.ENDS, **flows.ENDS, **functions.ENDS, **maps.ENDS}


def task_promises(app: App) -> dict[str, TaskPromise]:
    return {
        name: TaskPromise(
            Guarantee(task.options_.guarantee).label,  # type: ignore[arg-type]
            task.options_.retry.max_attempts,
            _ENDS.get(name, "succeeded"),  # type: ignore[arg-type]
            LIMITS.of_tasks().get(name),
            name in hung.HANGING,
        )
        for name, task in app.tasks.items()
    }


def choose_schedules(random: Random) -> list[SchedulePromise]:
    """A few, of every overlap policy, every one to ten seconds."""
    made: list[SchedulePromise] = []
    for number in range(random.randint(4, 8)):
        every = random.choice((1, 2, 3, 5, 10))
        task = random.choice(SCHEDULED)
        overlap: Any = OVERLAPS[number % 4]
        catch_up: Any = random.choice(("all", "latest", "none"))
        made.append(
            SchedulePromise(f"s{number}-{every}s-{overlap}", task, every, overlap, catch_up)
        )
    return made
