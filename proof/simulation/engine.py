"""The real PostgreSQL behind a simulated one: statements one at a time, whatever they wait for.

Protocol. A simulated session has a real connection for the length of each transaction. Before a
statement the virtual moment is written into a file, which the schema's `now()` reads: that costs no
round trip. A statement is run to its end before anything else happens, on an event loop of its own that
the simulation's steps into.

One that waits for the lock of another session's open transaction is parked: its server process is
stopped (SIGSTOP), since one commit may release several who would then race in real time. After
everything that may release a lock, the parked ones are looked at in the order in which they came, and
each that isn't blocked any more goes on alone. Nothing depends on real time: deadlocks are found here,
and the server's own time limits are off.

Hints are notices (see `template.py`): they arrive with a statement's answer, and count when it commits.
"""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio import events
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg

from proof.simulation.loop import FIRST_MOMENT

# The database's time at the simulation's first moment. A date that no real run will ever have.
EPOCH = datetime(2031, 1, 1, 12, tzinfo=UTC)
DATABASE_MINUS_AT = EPOCH.timestamp() - FIRST_MOMENT

_LOOK_SECONDS = 0.01  # real: how long a statement may take before we ask whether it is blocked
_REAL_LIMITS = {
    "statement_timeout": "0", "idle_in_transaction_session_timeout": "0", "deadlock_timeout": "1h",
    "lock_timeout": "0",
}  # fmt: skip
# Whom an onlooker would wait for is parked, and stays so: an error, and not a wait for ever.
_ONLOOKER = {"lock_timeout": "2s"}

Done = Callable[[Any, BaseException | None], None]
Settings = tuple[tuple[str, str], ...]


class Backend:
    """A real connection on behalf of one simulated session at a time."""

    def __init__(self, connection: Any, settings: Settings) -> None:
        self.connection = connection
        self.settings = settings
        self.pid: int = connection.get_server_pid()
        self.hints: list[tuple[str, str]] = []  # of the open transaction
        self.moment = 0.0  # when its statement began
        self.task: asyncio.Task[Any] | None = None
        self.done: Done | None = None

    @property
    def in_transaction(self) -> bool:
        return bool(self.connection.is_in_transaction())

    def note(self, _connection: Any, message: Any) -> None:
        if message.message.startswith("hint "):
            _, channel, payload = message.message.split(" ", 2)
            self.hints.append((channel, payload))


class _RealLoop(asyncio.SelectorEventLoop):
    """The loop of the real connections, which is stepped and never left running."""

    def step_until(self, over: Callable[[], bool]) -> None:
        outer = events._get_running_loop()
        events._set_running_loop(self)
        try:
            while not over():
                self._run_once()  # type: ignore[attr-defined]
        finally:
            events._set_running_loop(outer)


class Engine:
    def __init__(self, url: str, clock: Path) -> None:
        self._url = url
        self._clock = os.open(clock, os.O_WRONLY)
        self._loop = _RealLoop()
        self._idle: dict[Settings, list[Backend]] = {}
        self._all: list[Backend] = []
        self._parked: list[Backend] = []
        self._monitor = self._run(self._connect(_ONLOOKER))
        self.committed: Callable[[list[tuple[str, str]]], None] = lambda hints: None
        self.statements = 0
        self.parkings = 0
        self.deadlocks = 0
        self.offset = 0.0  # by which the database's clock was set
        self._readers: dict[Backend, None] = {}

    def close(self) -> None:
        for backend in self._parked:
            os.kill(backend.pid, signal.SIGCONT)
        for connection in (*(backend.connection for backend in self._all), self._monitor):
            connection.terminate()
        self._run(asyncio.sleep(0))
        self._loop.close()
        os.close(self._clock)

    # -- stepping into the real world

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        task = self._loop.create_task(work)
        self._loop.step_until(task.done)
        return task.result()

    async def _connect(self, settings: dict[str, str]) -> Any:
        return await asyncpg.connect(self._url, server_settings=settings)

    def ask(self, sql: str, *arguments: Any) -> list[Any]:
        """By an onlooker, outside all sessions and all faults."""
        rows: list[Any] = self._run(self._monitor.fetch(sql, *arguments))
        return rows

    def ask_script(self, sql: str) -> None:
        self._run(self._monitor.execute(sql))

    def set_clock(self, moment: float) -> None:
        # Always of the same length: each text replaces the one before.
        since = moment - FIRST_MOMENT + self.offset
        text = (EPOCH + timedelta(seconds=since)).isoformat(" ", "microseconds")
        os.pwrite(self._clock, text.encode(), 0)

    # -- connections

    def borrow(self, settings: dict[str, str]) -> Backend:
        """For a transaction: sessions leave nothing else behind, so that few connections do for all."""
        key: Settings = tuple(sorted({**settings, **_REAL_LIMITS}.items()))
        idle = self._idle.setdefault(key, [])
        if idle:
            return idle.pop()
        backend = Backend(self._run(self._connect(dict(key))), key)
        backend.connection.add_log_listener(backend.note)
        self._all.append(backend)
        return backend

    def give_back(self, backend: Backend, *, unlock: bool) -> None:
        """What is open is rolled back; the session's own locks go as well."""
        if backend.task is not None:
            self.cancel(backend)
        if backend.in_transaction:
            self._run(backend.connection.execute("rollback"))
        if unlock:
            self._run(backend.connection.execute("select pg_advisory_unlock_all()"))
        backend.hints.clear()
        self._idle[backend.settings].append(backend)
        self._settle()

    # -- readers

    def open_reader(self, table: str) -> Backend | None:
        """Somebody reads a table, in a transaction that stays open. Nobody does while a parked one waits
        for that table: who reads would wait behind it in real time, for ever."""
        backend = self.borrow({})
        sql = f"begin; lock table {table} in access share mode nowait"
        try:
            self._run(backend.connection.execute(sql))
        except asyncpg.LockNotAvailableError:
            self.give_back(backend, unlock=False)
            return None
        self._readers[backend] = None
        return backend

    def close_reader(self, backend: Backend) -> None:
        del self._readers[backend]
        self.give_back(backend, unlock=False)

    def waits_for_reader(self, backend: Backend) -> bool:
        """Directly, or behind somebody who does."""
        readers = {reader.pid for reader in self._readers}
        parked = {other.pid: other for other in self._parked}
        seen: set[int] = set()
        ahead = [backend.pid]
        while ahead and readers:
            pid = ahead.pop()
            if pid in readers:
                return True
            if pid in parked and pid not in seen:
                seen.add(pid)
                ahead += self._blockers(parked[pid])
        return False

    # -- statements

    def start(self, backend: Backend, method: str, arguments: tuple[Any, ...],
              options: dict[str, Any], moment: float, done: Done) -> None:  # fmt: skip
        """`done` is called at once, or when the statement has got the lock it waits for."""
        self.statements += 1
        backend.done, backend.moment = done, moment
        self.set_clock(moment)
        work = getattr(backend.connection, method)(*arguments, **options)
        backend.task = self._loop.create_task(work)
        if self._attend(backend):
            self._end(backend)
            self._settle()
        else:
            self._park(backend)

    def _attend(self, backend: Backend) -> bool:
        """Whether it has ended; if not, it waits for a lock."""
        task = backend.task
        assert task is not None
        others = (other for other in self._all if other is not backend)
        if not any(other.in_transaction or other in self._parked for other in others):
            self._loop.step_until(task.done)  # there is nobody to wait for
            return True
        while True:
            late: list[bool] = []
            alarm = self._loop.call_later(_LOOK_SECONDS, late.append, True)
            self._loop.step_until(lambda: task.done() or bool(late))  # noqa: B023 - runs at once
            alarm.cancel()
            if task.done():
                return True
            if self._blockers(backend):
                return False

    def _blockers(self, backend: Backend) -> list[int]:
        pids: list[int] = self.ask("select pg_blocking_pids($1)", backend.pid)[0][0]
        return pids

    def _end(self, backend: Backend) -> None:
        task, done = backend.task, backend.done
        backend.task = backend.done = None
        assert task is not None
        assert done is not None
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if not backend.in_transaction:
            hints, backend.hints = backend.hints, []
            if hints and error is None:
                self.committed(hints)
        done(None if error else task.result(), error)

    # -- waiting for locks

    def _park(self, backend: Backend) -> None:
        self.parkings += 1
        os.kill(backend.pid, signal.SIGSTOP)
        self._parked.append(backend)
        if self._waits_for_itself(backend):
            self.deadlocks += 1
            self.cancel(backend, asyncpg.DeadlockDetectedError("deadlock detected"))

    def end_parked(self) -> None:
        """Nobody waits for their answers any more, and others are to read what they wait for."""
        parked, self._parked = self._parked, []
        for backend in parked:
            self.ask("select pg_terminate_backend($1)", backend.pid)
            os.kill(backend.pid, signal.SIGCONT)

    def _waits_for_itself(self, backend: Backend) -> bool:
        waits = {parked.pid: self._blockers(parked) for parked in self._parked}
        seen: set[int] = set()
        ahead = list(waits[backend.pid])
        while ahead:
            pid = ahead.pop()
            if pid == backend.pid:
                return True
            if pid not in seen:
                seen.add(pid)
                ahead += waits.get(pid, [])
        return False

    def cancel(self, backend: Backend, error: BaseException | None = None) -> None:
        """As a cancel request: the parked statement ends with an error, its own or this one."""
        assert backend.task is not None
        if error is not None:
            done = backend.done
            assert done is not None
            backend.done = lambda _result, _error: done(None, error)
        self._parked.remove(backend)
        self.ask("select pg_cancel_backend($1)", backend.pid)
        os.kill(backend.pid, signal.SIGCONT)
        self._loop.step_until(backend.task.done)
        self._end(backend)
        self._settle()

    def _settle(self) -> None:
        """Those whose lock has come free go on to their end, in the order in which they came."""
        again = bool(self._parked)
        while again:
            again = False
            for backend in list(self._parked):
                if backend in self._parked and self._goes_on(backend):
                    self._parked.remove(backend)
                    self._end(backend)
                    again = True

    def _goes_on(self, backend: Backend) -> bool:
        if self._blockers(backend):
            return False
        self.set_clock(backend.moment)
        os.kill(backend.pid, signal.SIGCONT)
        if self._attend(backend):
            return True
        os.kill(backend.pid, signal.SIGSTOP)
        return False
