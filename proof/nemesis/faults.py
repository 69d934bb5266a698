"""Breaks what the plan says, writes down from when to when, and mends it.

Protocol. Every fault is a context: entering breaks, leaving mends, also when the run is interrupted. A
fault whose target is already down is passed over and counted as such. A fault is written down when it
is over, with the moments at which it began and ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

import asyncpg
import msgspec
import psutil

from proof.history import EVERYONE, KILL, PAUSE, SHUTDOWN, ClockStep, Fault, Recorder
from proof.nemesis.database import LOST, Database
from proof.nemesis.members import Member
from proof.nemesis.network import Cut
from proof.nemesis.plan import Planned
from proof.nemesis.proxy import Kind, Trouble
from proof.nemesis.server import Server
from proof.simulation.trouble import SQLSTATES

_LINE_KINDS: tuple[Kind, ...] = (
    "delay", "throttle", "hold", "stall", "lose_reply", "drop_up", "drop_down", "refuse", "forget",
    "error_reply", "too_many",
)  # fmt: skip
_CUTS: dict[str, Cut] = {
    "partition": "both", "partition_out": "out", "partition_in": "in", "partition_reset": "reset",
}  # fmt: skip

_OFTEN = 0.002  # of all statements, in bad weather


Broken = contextlib.AbstractAsyncContextManager["Record"]


class Record(msgspec.Struct):
    """What will be written down of a fault."""

    kind: str
    target: str
    detail: list[str] = []


class Passed(Exception):
    """Nothing to break there just now."""


@contextlib.contextmanager
def _passing() -> Iterator[None]:
    """What can't be done because another fault is under way is passed over."""
    try:
        yield
    except LOST:
        raise Passed from None


class Breaker:
    def __init__(
        self, members: Mapping[str, Member], server: Server, database: Database,
        recorder: Recorder, seed: int, lease: float,
    ) -> None:  # fmt: skip
        self._members = members
        self._server = server
        self._database = database
        self._recorder = recorder
        self._chance = random.Random(seed)
        self._lease = lease
        self._behind = 0.0  # the database's clock
        self._setting_clock = asyncio.Lock()
        self.clock_steps: list[ClockStep] = []
        self._started = 0.0
        self.done: Counter[str] = Counter()
        self.passed: Counter[str] = Counter()

    async def carry_out(self, plan: Sequence[Planned], weather: bool) -> None:
        """The whole plan; returns when the last fault is over.

        In bad weather any statement of anybody may fail meanwhile, before or after its effect.
        """
        self._started = time.monotonic()
        async with contextlib.AsyncExitStack() as undo:
            if weather:
                await undo.enter_async_context(self._weather())
            async with asyncio.TaskGroup() as group:
                for planned in plan:
                    group.create_task(self._carry_out_one(planned))

    @contextlib.asynccontextmanager
    async def _weather(self) -> AsyncIterator[None]:
        troubles = [
            (member.proxy, Trouble("error_reply", _OFTEN, SQLSTATES))
            for member in self._members.values()
        ]
        for proxy, trouble in troubles:
            proxy.begin(trouble)
        try:
            async with self._database.failing(SQLSTATES, _OFTEN):
                yield
        finally:
            for proxy, trouble in troubles:
                proxy.end(trouble)
            self.write(self._started, Record("weather", EVERYONE))

    async def _carry_out_one(self, planned: Planned) -> None:
        await asyncio.sleep(max(self._started + planned.after - time.monotonic(), 0))
        begun = time.monotonic()
        try:
            async with self._broken(planned) as record:
                if planned.seconds:
                    await asyncio.sleep(planned.seconds)
        except Passed:
            self.passed[planned.kind] += 1
            return
        self.write(begun, record)
        self.done[planned.kind] += 1

    def write(self, begun: float, record: Record) -> None:
        detail = "; ".join(record.detail)
        self._recorder.write(Fault(begun, time.monotonic(), record.kind, record.target, detail))

    def note_surprise(self, label: str, code: int) -> None:
        """A process that ended by itself is as gone as a killed one."""
        self.write(time.monotonic(), Record(KILL, label, [f"by itself: exit code {code}"]))

    def note_crash(self, how: str) -> None:
        """A process of the server that crashed takes all others with it, as a restart does."""
        self.write(time.monotonic() - 1.0, Record("restart_server", "server", [how]))

    def note_clock_step(self, step: ClockStep) -> None:
        """Whoever was alive a moment ago may be taken for dead: its lease has leapt to its end."""
        self.write(step.at, Record("clock step", "the machine", [f"by {step.by:+.3f} s"]))

    def _broken(self, planned: Planned) -> Broken:
        kind = planned.kind
        if kind in _LINE_KINDS:
            return self._line(planned)
        if kind in _CUTS:
            return self._network(planned)
        if kind in ("kill", "term"):
            return self._ended(planned)
        if kind.startswith("stop"):
            return self._frozen(planned)
        return {
            "kill_child": self._child_killed,
            "restart_server": self._server_restarted,
            "terminate_backends": self._backends_terminated,
            "clock": self._clock_shifted,
            "fail_statements": self._statements_failing,
            "cancel_statements": self._statements_cancelled,
            "lock_rows": self._rows_locked,
            "drop_days": self._days_dropped,
            "database_clock": self._database_clock_set_back,
        }[kind](planned)

    def _living(self, name: str) -> Member:
        member = self._members[name]
        if not member.is_up:
            raise Passed
        return member

    # -- processes

    @contextlib.asynccontextmanager
    async def _ended(self, planned: Planned) -> AsyncIterator[Record]:
        member = self._living(planned.target)
        number = signal.SIGKILL if planned.kind == "kill" else signal.SIGTERM
        label = member.label
        async with member.held_down(number) as obeyed:
            graceful = number == signal.SIGTERM and obeyed
            detail = [] if obeyed else ["ignored SIGTERM"]
            yield Record(SHUTDOWN if graceful else KILL, label, detail)

    @contextlib.asynccontextmanager
    async def _frozen(self, planned: Planned) -> AsyncIterator[Record]:
        member = self._living(planned.target)
        alone = planned.kind == "stop"

        def choose(processes: list[psutil.Process]) -> list[psutil.Process]:
            return processes[:1] if alone else processes

        with member.frozen(choose) as stopped:
            yield Record(PAUSE, member.label, [planned.kind, f"{len(stopped)} processes"])

    @contextlib.asynccontextmanager
    async def _child_killed(self, planned: Planned) -> AsyncIterator[Record]:
        member = self._living(planned.target)
        children = member.processes()[1:]
        if not children:
            raise Passed
        with contextlib.suppress(psutil.Error):
            self._chance.choice(children).kill()
        yield Record(planned.kind, member.label)

    # -- the server

    @contextlib.asynccontextmanager
    async def _server_restarted(self, planned: Planned) -> AsyncIterator[Record]:
        await self._server.restart()
        yield Record(planned.kind, "server")

    @contextlib.asynccontextmanager
    async def _backends_terminated(self, planned: Planned) -> AsyncIterator[Record]:
        try:
            connection = await asyncpg.connect(self._server.url, timeout=5)
        except (OSError, asyncpg.PostgresError, TimeoutError):
            raise Passed from None
        ended: int | None = 0
        try:
            ended = await connection.fetchval(
                "select count(pg_terminate_backend(pid)) from pg_stat_activity"
                " where backend_type = 'client backend' and pid <> pg_backend_pid()"
                " and random() < $1",
                planned.amount,
            )
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            raise Passed from None
        finally:
            connection.terminate()
        yield Record(planned.kind, "server", [f"{ended} connections"])

    # -- the database

    @contextlib.asynccontextmanager
    async def _statements_failing(self, planned: Planned) -> AsyncIterator[Record]:
        """A disk is full, say, for a while: much fails, or nearly everything."""
        sqlstate = self._chance.choice(SQLSTATES)
        async with self._database.failing((sqlstate,), planned.amount):
            yield Record(planned.kind, EVERYONE, [sqlstate])

    @contextlib.asynccontextmanager
    async def _statements_cancelled(self, planned: Planned) -> AsyncIterator[Record]:
        work = self._database.cancel_statements(planned.amount, planned.seconds)
        cancelling, record = asyncio.create_task(work), Record(planned.kind, EVERYONE)
        try:
            yield record
        finally:
            with _passing():
                record.detail.append(f"{await cancelling} statements")

    @contextlib.asynccontextmanager
    async def _rows_locked(self, planned: Planned) -> AsyncIterator[Record]:
        async with contextlib.AsyncExitStack() as undo:
            with _passing():
                rows = await undo.enter_async_context(self._database.rows_locked())
            yield Record(planned.kind, EVERYONE, [rows])

    @contextlib.asynccontextmanager
    async def _days_dropped(self, planned: Planned) -> AsyncIterator[Record]:
        with _passing():
            dropped = await self._database.drop_days()
        if not dropped:
            raise Passed
        yield Record(planned.kind, EVERYONE, [f"{dropped} partitions"])

    @contextlib.asynccontextmanager
    async def _database_clock_set_back(self, planned: Planned) -> AsyncIterator[Record]:
        """One step at a time: the next one comes when what was before has come again."""
        clock = self._server.clock
        if clock is None or self._setting_clock.locked():
            raise Passed
        async with self._setting_clock:
            self._behind += planned.amount
            clock.shift(-self._behind)
            self.clock_steps.append(ClockStep(time.monotonic(), -planned.amount))
            await asyncio.sleep(planned.amount + self._lease)
            yield Record(planned.kind, EVERYONE, [f"by {planned.amount:.3f} s"])

    # -- lines and networks

    @contextlib.asynccontextmanager
    async def _line(self, planned: Planned) -> AsyncIterator[Record]:
        proxy = self._members[planned.target].proxy
        sqlstates = (self._chance.choice(SQLSTATES),) if planned.kind == "error_reply" else ()
        trouble = Trouble(planned.kind, planned.amount, sqlstates)  # type: ignore[arg-type]
        record = Record(planned.kind, self._members[planned.target].label, list(sqlstates))
        proxy.begin(trouble)
        try:
            yield record
        finally:
            proxy.end(trouble)
            record.detail.append(f"{trouble.hits} hits")

    @contextlib.asynccontextmanager
    async def _network(self, planned: Planned) -> AsyncIterator[Record]:
        namespace = self._members[planned.target].namespace
        if namespace is None:
            raise Passed
        cut = _CUTS[planned.kind]
        namespace.begin(cut)
        try:
            yield Record(planned.kind, self._members[planned.target].label)
        finally:
            namespace.end(cut)

    # -- clocks

    @contextlib.asynccontextmanager
    async def _clock_shifted(self, planned: Planned) -> AsyncIterator[Record]:
        clock = self._members[planned.target].clock
        if clock is None:
            raise Passed
        clock.shift(int(planned.amount))
        try:
            yield Record(planned.kind, planned.target, [f"{planned.amount:+.0f} s"])
        finally:
            clock.shift(0)
