"""Runs an app in tests: on a private schema, where time stands still until the test moves it.

    async with rota.testing.isolated(app) as sandbox:
        await remind.options(delay=3600).submit(order_id=7)
        assert await sandbox.run_due() == []           # not due yet
        await sandbox.advance(hours=1)
        [job] = await sandbox.run_due()                # runs it, here and now
        assert job.state == "succeeded"

It is the real thing on a real PostgreSQL: the same statements release, claim and finish the jobs,
the same rules decide about retries, `exactly_once` handlers get their transaction and `once` keys
are kept. Only the workers are missing: nothing runs unless the test says so, and then one job
after the other, in this process. Plain functions run in a thread, so that patches and breakpoints
work. How long a handler runs is real, timeouts included. Nothing is left behind: the schema is
dropped at the end.

The schema is made in the app's own database; without a database URL in the embedded PostgreSQL,
which then stays up until the process ends, so that only the first test waits for it.

pytest has it as the fixture `rota`, for tests that are coroutines and for plain ones:

    async def test_a_reminder_is_sent_after_an_hour(rota):
        await remind.options(delay=3600).submit(order_id=7)
        await rota.advance(hours=1)
        await rota.run_due(raise_errors=True)
        assert outbox == ["order 7"]
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Self
from uuid import UUID

from rota.app import App
from rota.config import Settings
from rota.context import JobInfo
from rota.errors import ConfigError, RotaError
from rota.lib.ids import new_id
from rota.lib.sync_bridge import sync_bridge
from rota.model import Job, State
from rota.runtime.advancer import Advancer
from rota.runtime.heartbeat import Lease
from rota.scheduler.firer import Firer
from rota.scheduler.shards import AllShards
from rota.store.database import Database
from rota.store.embedded import EmbeddedPostgres, open_embedded
from rota.store.limits import Ended, LimitStore
from rota.store.migrate import migrate
from rota.store.schedules import ScheduleStore
from rota.store.work import LaneClaim, UpkeepStore
from rota.worker.execution import Execution
from rota.worker.scheduled_runs import enable_scheduled_runs
from rota.worker.shared_lanes import MARK, is_shared

__all__ = ["EndlessRun", "Sandbox", "SyncSandbox", "isolated", "isolated_sync"]

_LOOKS = 100  # into sublanes, for one job
_RELEASE = 5_000
_embedded: dict[Path, EmbeddedPostgres] = {}  # left when the process ends


class EndlessRun(RotaError):
    """`run_due` ran very many jobs and more were still due: a job probably submits itself."""


class Sandbox:
    """An app on a private schema with its own time. Made by `isolated`."""

    def __init__(self, app: App, database: Database, now: datetime) -> None:
        self.app = app
        self._database = database
        self._now = now
        self._node = new_id()

    def now(self) -> datetime:
        """Return the time in this sandbox. It stands still."""
        return self._now

    async def advance(self, delta: timedelta | None = None, /, **units: float) -> datetime:
        """Move time forward, by a timedelta or as in ``advance(hours=1, seconds=30)``.

        It is a jump: an occurrence of a schedule that was due on the way counts as missed, as after
        an outage. `run_for` goes through it.
        """
        return await self.travel_to(self._now + (delta or timedelta()) + timedelta(**units))

    async def travel_to(self, moment: datetime) -> datetime:
        """Move time forward to this moment. What comes due on the way waits for `run_due`."""
        if moment.tzinfo is None:
            raise ConfigError(f"travel_to() needs a datetime with a time zone, not {moment!r}")
        if moment < self._now:
            raise ConfigError(f"time only moves forward: it is {self._now}, later than {moment}")
        await _set_time(self._database, moment)
        self._now = moment
        return moment

    async def run_for(
        self, delta: timedelta | None = None, /, *, raise_errors: bool = False, **units: float
    ) -> list[Job]:
        """Let time pass as in ``run_for(days=1)``: see `run_until`."""
        until = self._now + (delta or timedelta()) + timedelta(**units)
        return await self.run_until(until, raise_errors=raise_errors)

    async def run_until(self, moment: datetime, *, raise_errors: bool = False) -> list[Job]:
        """Let time pass: schedules fire and jobs run on the way, each at its own moment.

        Gives back the jobs that have ended, in that order.
        """
        ended = await self.run_due(raise_errors=raise_errors)
        while (due := await self._next_moment()) is not None and due <= moment:
            await self.travel_to(due)
            ended += await self.run_due(raise_errors=raise_errors)
        await self.travel_to(moment)
        return ended + await self.run_due(raise_errors=raise_errors)

    async def _next_moment(self) -> datetime | None:
        """Return when something is due next: a job, an occurrence, the end of a pause."""
        moment: datetime | None = await self._database.fetchval("next_moment")
        return moment

    async def jobs(self, **filters: Any) -> list[Job]:
        """List the jobs of this sandbox, newest first; takes the filters of `app.jobs.list`."""
        return await self.app.jobs.list(**filters)

    async def run_due(self, *, raise_errors: bool = False, limit: int = 10_000) -> list[Job]:
        """Run what is due now, and what that makes due, until nothing is left.

        Gives back the jobs that have ended, in that order. What raises is recorded as in
        production, and tried again in this call if its retry is due at once; otherwise it stays
        scheduled until time is moved. Jobs of paused queues and of tasks that the app doesn't know
        are left alone.

        Args:
            raise_errors: raise what the first attempt failed with, once it is recorded: what its handler
                raised, or `rota.errors.TimedOut`.
            limit: how many attempts to run before `EndlessRun` is raised.
        """
        async with _Inline(self.app, self._database, self._node) as inline:
            while await inline.run_next():
                if raise_errors and inline.raised:
                    raise inline.raised[0]
                if len(inline.ran) > limit:
                    raise EndlessRun(
                        f"{limit:,} attempts ran and more jobs are due: does a task submit itself? "
                        "Otherwise pass a higher limit to run_due()"
                    )
        return await self._ended(inline.ran)

    async def _ended(self, ran: list[UUID]) -> list[Job]:
        store = await self.app.store()
        found = await store.get_jobs(self.app.settings.namespace, ran)
        ended = {job.id: job for job in found if State.parse(job.state).is_final}
        last_runs = list(dict.fromkeys(reversed(ran)))[::-1]
        return [ended[each] for each in last_runs if each in ended]


class SyncSandbox:
    """A `Sandbox` for synchronous code: the same methods, called without `await`.

    Coroutines run in the event loop of a thread of their own.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self.app = sandbox.app
        self._sandbox = sandbox

    def now(self) -> datetime:
        """Return the time in this sandbox. It stands still."""
        return self._sandbox.now()

    def advance(self, delta: timedelta | None = None, /, **units: float) -> datetime:
        """Move time forward, as in ``advance(hours=1)``. See `Sandbox.advance`."""
        return sync_bridge.call(lambda: self._sandbox.advance(delta, **units), "advance")

    def travel_to(self, moment: datetime) -> datetime:
        """Move time forward to this moment. What comes due on the way waits for `run_due`."""
        return sync_bridge.call(lambda: self._sandbox.travel_to(moment), "travel_to")

    def run_for(
        self, delta: timedelta | None = None, /, *, raise_errors: bool = False, **units: float
    ) -> list[Job]:
        """Let time pass as in ``run_for(days=1)``. See `Sandbox.run_until`."""
        run = self._sandbox.run_for
        return sync_bridge.call(lambda: run(delta, raise_errors=raise_errors, **units), "run_for")

    def run_until(self, moment: datetime, *, raise_errors: bool = False) -> list[Job]:
        """Let time pass: schedules fire and jobs run on the way. See `Sandbox.run_until`."""
        run = self._sandbox.run_until
        return sync_bridge.call(lambda: run(moment, raise_errors=raise_errors), "run_until")

    def run_due(self, *, raise_errors: bool = False, limit: int = 10_000) -> list[Job]:
        """Run what is due now, and what that makes due. See `Sandbox.run_due`."""
        run = self._sandbox.run_due
        return sync_bridge.call(lambda: run(raise_errors=raise_errors, limit=limit), "run_due")

    def jobs(self, **filters: Any) -> list[Job]:
        """List the jobs of this sandbox, newest first; takes the filters of `app.jobs.list`."""
        return sync_bridge.call(lambda: self._sandbox.jobs(**filters), "jobs")


@contextlib.contextmanager
def isolated_sync(
    app: App, *, now: datetime | None = None, **settings: Any
) -> Iterator[SyncSandbox]:
    """Open the app on a private schema, from synchronous code. See `isolated`."""
    stack = contextlib.AsyncExitStack()
    entered = isolated(app, now=now, **settings)
    sandbox = sync_bridge.call(lambda: stack.enter_async_context(entered), "isolated")
    try:
        yield SyncSandbox(sandbox)
    finally:
        sync_bridge.call(stack.aclose, "close")


@contextlib.asynccontextmanager
async def isolated(
    app: App, *, now: datetime | None = None, **settings: Any
) -> AsyncIterator[Sandbox]:
    """Open the app on a private, empty schema with its own time, for the length of the block.

    Inside, `app` and its tasks use that schema; afterwards it is dropped, and the app is as before.

    Args:
        app: your application.
        now: the time to begin with (with a time zone); by default the database's.
        settings: other settings of the app for this block, e.g. ``namespace="acme"``.
    """
    if now is not None and now.tzinfo is None:
        raise ConfigError(f"now must be a datetime with a time zone, not {now!r}")
    url = await test_database_url(app)
    private = app.settings.replace(
        **settings, database_url=url, schema=f"rota_test_{new_id().hex[12:]}"
    )
    database = Database(url, private, hot=True)
    await database.open()
    try:
        async with open_sandbox(app, database, private, now) as sandbox:
            yield sandbox
    finally:
        async with database.connection() as connection:
            await connection.execute(f"drop schema if exists {private.schema} cascade")
        await database.close()


@contextlib.asynccontextmanager
async def open_sandbox(
    app: App, database: Database, private: Settings, now: datetime | None
) -> AsyncIterator[Sandbox]:
    """Open the app with these settings, on a schema that is made unless it exists, and kept."""
    begin = await _prepare(database, now)
    app.prepare()
    enable_scheduled_runs(app)
    async with app.using(private):
        yield Sandbox(app, database, begin)


async def test_database_url(app: App) -> str:
    """Return the URL of the app's database: without one, of the embedded PostgreSQL, which stays up."""
    if url := app.settings.database_url:
        return url
    return await asyncio.to_thread(_embedded_url, app.settings.data_dir)


test_database_url.__test__ = False  # type: ignore[attr-defined] # by its name, pytest takes it for one


def _embedded_url(data_dir: Path) -> str:
    if data_dir not in _embedded:
        _embedded[data_dir] = open_embedded(data_dir)
    return _embedded[data_dir].url


async def _prepare(database: Database, now: datetime | None) -> datetime:
    async with database.connection() as connection:
        await migrate(connection, database.schema)
        # Jobs are released at their moment, not ahead of it: here nobody waits for it to come.
        await connection.execute(
            f"update {database.schema}.setting set value = 0 where name = 'horizon_ms'"  # noqa: S608
        )
        begin: datetime = now or await connection.fetchval("select now()")
    await _set_time(database, begin)
    return begin


async def _set_time(database: Database, moment: datetime) -> None:
    # A literal, and not a table to read it from: PostgreSQL inlines no function that reads a table.
    # Plans that were made with the old one are dropped by PostgreSQL, in all connections.
    async with database.connection() as connection:
        await connection.execute(
            f"create or replace function {database.schema}.now() returns timestamptz "
            f"language sql stable parallel safe as 'select timestamptz ''{moment.isoformat()}'''"
        )


class _Inline:
    """Claims one job at a time, and gives each to a worker's own execution."""

    def __init__(self, app: App, database: Database, node: UUID) -> None:
        self._database = database
        self._app = app
        self._node = node
        self._upkeep = UpkeepStore(database)
        self._limits = LimitStore(database)
        self._advancer = Advancer(database, interval=1.0)
        self.ran: list[UUID] = []
        self.raised: list[Exception] = []
        lease = Lease()  # of a node that nobody else can declare dead
        lease.node_id, lease.trusted_until = node, float("inf")
        hooks = (*app.error_hooks, self._keep_error)
        self._execution = Execution(app, database, lease, app.tasks, hooks)
        self._ended_in: dict[str, Ended] = {}  # by sublane; their seconds are not counted
        self._ready: list[str] = []  # lanes that may have something

    def _keep_error(self, job: JobInfo, error: BaseException) -> None:
        if isinstance(error, Exception):
            self.raised.append(error)

    async def __aenter__(self) -> Self:
        await self._execution.start(processes=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._execution.stop()
        closed = sorted(self._execution.finisher.closing())
        await self._execution.store.batches.close(self._node, closed)

    async def run_next(self) -> bool:
        """Run one job that is due. Return whether there was one."""
        if await self._run_one():
            return True
        await self._release()
        rows = await self._execution.store.lanes(self._app.settings.namespace)
        self._ready = sorted((row["lane"] for row in rows), reverse=True)
        return await self._run_one()

    async def _run_one(self) -> bool:
        """Run one job of the lanes that may have something."""
        while self._ready:
            for row in await self._claim_one(self._ready[-1], sorted(self._app.tasks)):
                await self._run(row)
                return True
            self._ready.pop()
        return False

    async def _claim_one(self, lane: str, tasks: list[str]) -> list[Any]:
        if is_shared(lane):
            base = lane.removesuffix(MARK)
            for _ in range(_LOOKS):  # the first may find only what is blocked
                rows = await self._limits.claim_shared(
                    self._node, {base: 1}, 1, tasks, self._ended_in
                )
                if rows or await self._limits.shared_pause([base]) != 0:
                    return rows
            return []
        return await self._execution.store.claim(self._node, [LaneClaim(lane, 1)], tasks)

    async def _release(self) -> None:
        while await self._advancer.tick() == 0.0:
            pass
        shards = list(range(await self._upkeep.shards()))
        firer = Firer(ScheduleStore(self._database), AllShards(len(shards)))
        while await firer.tick() == 0.0:
            pass
        everyone: list[int | None] = [None] * len(shards)
        while (await self._upkeep.release(shards, everyone, _RELEASE))[0] == _RELEASE:
            pass

    async def _run(self, row: Any) -> None:
        execution, ended = self._execution, asyncio.Event()
        execution.outcomes.ended = lambda _: ended.set()
        execution.outcomes.open_batch(row["token"], 1)
        work = execution.starter.accept(row)
        if work is not None:
            runner = execution.runners[self._app.tasks[work.task].runner]
            execution.starter.begin(runner, work)
            await ended.wait()
        await execution.flush()
        if execution.starter.missing_key is not None:
            raise execution.starter.missing_key
        self.ran.append(row["id"])
        self._ended_in[row["lane"]] = Ended(0, 0.0)
