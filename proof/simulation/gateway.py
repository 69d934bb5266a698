"""The simulated server: sessions over lines that break, on top of the real one.

Protocol. A call (a statement, a begin, a commit) is one request and one reply, each a message of the
network's. It is executed when its request arrives, never when it doesn't, and its caller may never hear
of it. The end of a session rolls back what was open, at once; the server hears of a dead client late.
A transaction that is idle for longer than its session allows is ended by virtual time, and so is a
statement that waits too long for a lock. Hints go to those who listen when their transaction commits:
late, twice or not at all. What else a server may do to a statement is in `trouble`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, Protocol

import asyncpg

from proof.simulation import trouble
from proof.simulation.engine import Backend, Engine
from proof.simulation.held_up import HeldUp
from proof.simulation.loop import Process, SimLoop
from proof.simulation.network import Line, Network
from proof.simulation.trace import Trace

Done = Callable[[Any, BaseException | None], None]
Strike = Callable[[tuple[Any, ...]], None]

_AT_ONCE = 0.01


class Call:
    """One statement on its way."""

    def __init__(self, method: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        self.method = method
        self.arguments = arguments
        self.options = options
        self.cancelled = False  # its caller has stopped waiting for it
        self.committing = False  # it can't be cancelled any more

    @property
    def text(self) -> str:
        return str(self.arguments[0])


class Client(Protocol):
    """The process's end of a session."""

    def answered(
        self, call: Call, result: Any, error: BaseException | None, inside: bool
    ) -> None: ...

    def lost(self, error: Exception) -> None: ...

    def notified(self, channel: str, payload: str) -> None: ...


class Session:
    """The server's end."""

    def __init__(self, line: Line, client: Client, settings: dict[str, str], pid: int) -> None:
        self.line = line
        self.client = client
        self.name = settings.get("application_name", "")
        self.settings = {name: settings[name] for name in settings if name != "application_name"}
        self.pid = pid  # as the simulated server counts its processes
        self.backend: Backend | None = None  # while a transaction or a statement is under way
        self.keeps = False  # it holds a lock of the session's, and so keeps its backend
        self.alive = True
        self.channels: dict[str, None] = {}
        self.call: Call | None = None
        self.timer: Any = None
        self.idle_limit = _seconds(settings.get("idle_in_transaction_session_timeout"))
        self.statement_limit = _seconds(settings.get("statement_timeout"))
        self.lock_limit = _seconds(settings.get("lock_timeout"))
        self.patience: float | None = None  # with locks, until its transaction ends


def _seconds(milliseconds: str | None) -> float | None:
    return int(milliseconds) / 1000 if milliseconds and int(milliseconds) else None


class Gateway:
    def __init__(self, loop: SimLoop, engine: Engine, network: Network, random: Random) -> None:
        self.loop = loop
        self.engine = engine
        self.network = network
        self.trace = Trace(loop)
        self._random = random
        self._lines: dict[Process, Line] = {}
        self._sessions: dict[Session, None] = {}
        self._up = True
        self._pids = 0
        self._ambushes: dict[Line, tuple[str, Strike]] = {}
        self.defaults: dict[str, str] = {}  # of sessions that don't say otherwise
        self.chances = Random(0)  # of what `trouble` does
        self.held_up = HeldUp(engine, network)
        engine.committed = self._tell

    def line(self, process: Process) -> Line:
        return self._lines.setdefault(process, Line(process))

    # -- sessions

    async def connect(self, client: Client, process: Process, settings: dict[str, str]) -> Session:
        """On behalf of a process; hangs while its line is blocked."""
        line = self.line(process)
        answer: asyncio.Future[Session] = self.loop.create_future()

        def arrive() -> None:
            if process.dead:
                return
            if not self._up:
                error = self._random.choice([ConnectionRefusedError, asyncpg.CannotConnectNowError])
                self.network.send(line, "down", lambda: _fail(answer, error("not up")))
                return
            self._pids += 1
            session = Session(line, client, {**self.defaults, **settings}, self._pids)
            self._sessions[session] = None
            self.network.send(line, "down", lambda: welcome(session))

        def welcome(session: Session) -> None:
            if answer.done():
                self.close(session)  # its caller has given up
            else:
                answer.set_result(session)

        self.network.send(line, "up", arrive)
        return await answer

    def leave(self, session: Session) -> None:
        """The client closes it: the server hears of that a little later."""
        self.network.send(session.line, "up", lambda: self.close(session))

    def close(self, session: Session) -> None:
        if session.alive:
            session.alive = False
            del self._sessions[session]
            self._disarm(session)
            self._give_back(session)

    def _give_back(self, session: Session) -> None:
        backend, session.backend = session.backend, None
        if backend is not None:
            self.engine.give_back(backend, unlock=session.keeps)

    def cut(self, session: Session, error: Exception | None = None) -> None:
        """Both ends lose it: the server now, the client soon."""
        if session.alive:
            self.close(session)
            lost = error or asyncpg.ConnectionDoesNotExistError("connection was closed")
            self.network.send(session.line, "down", lambda: session.client.lost(lost))

    def forget(self, process: Process) -> None:
        """A process was killed. Its machine says so at once, or nobody does."""
        quickly = self._random.random() < 0.7
        for session in [s for s in self._sessions if s.line.process is process]:
            delay = self._random.uniform(0, 0.05) if quickly else self._random.uniform(0.5, 20)
            self.network.after(delay, self.close, session)

    def stop(self) -> None:
        """The server goes down: all sessions are cut."""
        self._up = False
        for session in list(self._sessions):
            self.cut(session, asyncpg.AdminShutdownError("terminating connection"))

    def start(self) -> None:
        self._up = True

    # -- calls

    def request(self, session: Session, call: Call) -> None:
        query, strike = self._ambushes.get(session.line, ("", None))
        if strike is not None and self.trace.name_of(call.arguments[0]) in query.split():
            self.lift_ambush(session.line)
            strike(call.arguments[1:])
        if self.network.chance(self.network.weather.cut_before):
            self.network.after(self.network.latency(), self.cut, session)
        else:
            self.network.send(session.line, "up", lambda: self._arrive(session, call))

    def lay_ambush(self, line: Line, query: str, strike: Strike) -> None:
        """Call it with the arguments of the named query (or one of several) when that is sent next on
        that line, before it can arrive."""
        self._ambushes[line] = (query, strike)

    def lift_ambush(self, line: Line) -> None:
        self._ambushes.pop(line, None)

    def cancel(self, session: Session, call: Call) -> None:
        """Its caller doesn't wait any more, and asks the server to stop it."""
        call.cancelled = True
        self.network.send(session.line, "up", lambda: self._stop(session, call))

    def _stop(self, session: Session, call: Call, error: BaseException | None = None) -> None:
        waits = session.alive and session.call is call and not call.committing
        if waits and session.backend is not None and session.backend.task is not None:
            self.engine.cancel(session.backend, error)

    def _arrive(self, session: Session, call: Call) -> None:
        """It takes a while to be read if it is long, and a commit may take a while as well."""
        weather, wait = self.network.weather, 0.0
        if weather.bytes_a_second:
            wait = trouble.size_of(call.arguments[1:]) / weather.bytes_a_second
        if weather.slow_commit and trouble.is_commit(call.text):
            wait += self._slowness()
        if wait < _AT_ONCE:
            self._run(session, call)
            return
        self._disarm(session)
        limit = session.statement_limit
        if limit and wait > limit:
            self.network.after(limit, self._run, session, call, "57014")
        else:
            self.network.after(wait, self._run, session, call)

    def _slowness(self) -> float:
        slow = self.chances.random() < self.network.weather.slow_commit
        return self._commit_seconds() if slow else 0.0

    def _commit_seconds(self) -> float:
        """Of any order of magnitude: some are over before those that wait for them give up."""
        return float(10 ** self.chances.uniform(-2.0, 0.3))

    def _run(self, session: Session, call: Call, sqlstate: str | None = None) -> None:
        if not session.alive:
            gone = asyncpg.ConnectionDoesNotExistError("connection was closed")
            self.network.send(session.line, "down", lambda: session.client.lost(gone))
            return
        self._disarm(session)
        if call.cancelled and self.network.chance(0.5):
            self._executed(session, call, None, asyncpg.QueryCanceledError("cancelled"))
            return
        if self._answers_itself(session, call):
            return
        session.call = call
        if session.backend is None:
            session.backend = self.engine.borrow(session.settings)
        session.keeps = session.keeps or "pg_try_advisory_lock(" in call.text
        if (patience := trouble.lock_timeout(call.text)) is not None:
            session.patience = patience
        self._start(session, call, sqlstate or self._error_before(call))
        if session.call is call and not call.committing:
            self._wait(session, call)

    def _start(self, session: Session, call: Call, sqlstate: str | None) -> None:
        backend = session.backend
        assert backend is not None

        def done(result: Any, error: BaseException | None) -> None:
            if error is None and not backend.in_transaction:
                error = self._error_after(call)
            self._executed(session, call, None if error else result, error)

        if sqlstate is not None and trouble.is_commit(call.text):
            # A commit that fails is a rollback.
            failed = trouble.error_of(sqlstate)
            self._do(backend, "rollback", lambda _result, _error: done(None, failed))
        elif sqlstate is not None:
            self._do(backend, trouble.raising(sqlstate), done)
        elif not backend.in_transaction and self._commits_slowly(call):
            self._start_slowly(session, call, done)
        else:
            self._begin(backend, call, done)

    def _do(self, backend: Backend, sql: str, done: Done) -> None:
        self.engine.start(backend, "execute", (sql,), {}, self.loop.time(), done)

    def _begin(self, backend: Backend, call: Call, done: Done) -> None:
        text = trouble.without_lock_timeout(call.text)
        arguments = (text, *call.arguments[1:])
        self.engine.start(backend, call.method, arguments, call.options, self.loop.time(), done)

    def _commits_slowly(self, call: Call) -> bool:
        rate = self.network.weather.slow_commit
        named = rate and trouble.may_be_slow(self.trace.name_of(call.text))
        return bool(named and self.chances.random() < rate)

    def _start_slowly(self, session: Session, call: Call, done: Done) -> None:
        backend = session.backend
        assert backend is not None

        def executed(result: Any, error: BaseException | None) -> None:
            if error is not None:
                self._do(backend, "rollback", lambda _result, _error: done(None, error))
                return
            call.committing = True
            self._disarm(session)
            self.network.after(self._commit_seconds(), commit, result)

        def commit(result: Any) -> None:
            if session.alive and session.backend is backend:
                self._do(backend, "commit", lambda _result, error: done(result, error))

        self._do(backend, "begin", lambda _result, _error: None)
        self._begin(backend, call, executed)

    def _wait(self, session: Session, call: Call) -> None:
        """It waits for a lock: not for ever."""
        assert session.backend is not None
        self.held_up.watch(session, self.trace.name_of(call.text))
        patience = session.lock_limit if session.patience is None else session.patience
        limit = session.statement_limit
        if patience and (not limit or patience < limit):
            late = asyncpg.LockNotAvailableError("canceling statement due to lock timeout")
            session.timer = self.network.after(patience, self._stop, session, call, late)
        elif limit:
            session.timer = self.network.after(limit, self._stop, session, call)

    # -- errors

    def _error_before(self, call: Call) -> str | None:
        return self._draw(self.network.weather.error_before, call)

    def _error_after(self, call: Call) -> BaseException | None:
        sqlstate = self._draw(self.network.weather.error_after, call)
        return None if sqlstate is None else trouble.error_of(sqlstate)

    def _draw(self, rate: float, call: Call) -> str | None:
        weather = self.network.weather
        if rate and trouble.may_fail(call.text) and self.chances.random() < rate:
            return self.chances.choice(weather.sqlstates)
        return None

    def _answers_itself(self, session: Session, call: Call) -> bool:
        """What concerns the server's processes: the real ones are not those of the sessions."""
        result: Any
        if call.arguments[0] == "select pg_backend_pid()":
            result = session.pid
        elif self.trace.name_of(call.arguments[0]) == "end_backend":
            pid, name = call.arguments[1:]
            for other in list(self._sessions):
                if other.pid == pid and other.name == name:
                    self.cut(other, asyncpg.AdminShutdownError("terminating connection"))
            result = True
        else:
            return False
        self._executed(session, call, result, None)
        return True

    def _executed(
        self, session: Session, call: Call, result: Any, error: BaseException | None
    ) -> None:
        session.call = None
        self._disarm(session)
        self.trace.note(session.line.process, call.arguments[0], result, error)
        if not session.alive:
            return
        inside = session.backend is not None and session.backend.in_transaction
        if not inside:
            session.patience = None
            if not session.keeps:
                self._give_back(session)
        if inside and session.idle_limit:
            idle = asyncpg.IdleInTransactionSessionTimeoutError("idle in transaction")
            session.timer = self.network.after(session.idle_limit, self.cut, session, idle)
        if self.network.chance(self.network.weather.cut_after):
            self.network.after(0, self.cut, session)
            return
        self.network.send(
            session.line, "down", lambda: session.client.answered(call, result, error, inside)
        )

    def _disarm(self, session: Session) -> None:
        if session.timer is not None:
            session.timer.cancel()
            session.timer = None

    # -- hints

    def listen(self, session: Session, channel: str) -> None:
        session.channels[channel] = None

    def _tell(self, hints: list[tuple[str, str]]) -> None:
        weather = self.network.weather
        for channel, payload in dict.fromkeys(
            hints
        ):  # as NOTIFY: equal ones of a transaction are one
            for session in self._sessions:
                if channel in session.channels:
                    copies = 2 if self.network.chance(weather.hint_doubled) else 1
                    if self.network.chance(weather.hint_lost):
                        copies = 0
                    for _ in range(copies):
                        self.network.send(
                            session.line, "down", _delivery(session.client, channel, payload)
                        )


def _delivery(client: Client, channel: str, payload: str) -> Callable[[], None]:
    return lambda: client.notified(channel, payload)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
