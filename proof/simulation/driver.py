"""What takes the place of asyncpg below `rota.store.database`: its connections and its pool, simulated.

The names, the errors and the moments at which they are raised are asyncpg's. Its own `Transaction` is
used as it is, so that the order of begin, savepoint, rollback and commit is the real one.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from contextvars import copy_context
from functools import partial
from typing import Any

import asyncpg
from asyncpg.transaction import Transaction

from proof.simulation.gateway import Call, Gateway, Session
from proof.simulation.loop import PROCESS
from proof.simulation.template import with_sim_notify

Listener = Callable[[Any, int, str, str], None]


class SimConnection:
    def __init__(self, gateway: Gateway, command_timeout: float | None) -> None:
        self._gateway = gateway
        self._command_timeout = command_timeout
        self._context = copy_context()  # its process's
        self._session: Session | None = None
        self._closed = False
        self.lent = False  # to a user of the pool
        self._open_transaction = False
        self._call: Call | None = None
        self._answer: asyncio.Future[Any] | None = None
        self._leftover: asyncio.Future[None] | None = None  # a cancelled call that isn't over yet
        self._listeners: dict[str, list[Listener]] = {}
        self._when_lost: list[Callable[[Any], None]] = []
        self._transport = None  # no socket whose options could be set
        # What asyncpg's Transaction looks at.
        self._top_xact: Any = None
        self._pool_release_ctr = 0
        self._protocol = self
        self._numbers = itertools.count(1)

    async def open(self, settings: dict[str, str], timeout: float) -> SimConnection:
        process = PROCESS.get()
        assert process is not None, "only simulated processes have connections"
        async with asyncio.timeout(timeout):
            self._session = await self._gateway.connect(self, process, settings)
        return self

    # -- asyncpg's interface

    async def fetch(self, query: str, *args: Any, timeout: float | None = None) -> Any:
        return await self._perform("fetch", (query, *args), {}, timeout)

    async def fetchrow(self, query: str, *args: Any, timeout: float | None = None) -> Any:
        return await self._perform("fetchrow", (query, *args), {}, timeout)

    async def fetchval(
        self, query: str, *args: Any, column: int = 0, timeout: float | None = None
    ) -> Any:
        return await self._perform("fetchval", (query, *args), {"column": column}, timeout)

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> Any:
        return await self._perform("execute", (query, *args), {}, timeout)

    async def executemany(self, query: str, args: Any, *, timeout: float | None = None) -> Any:
        return await self._perform("executemany", (query, list(args)), {}, timeout)

    async def copy_records_to_table(
        self, table_name: str, *, timeout: float | None = None, **options: Any
    ) -> Any:
        return await self._perform("copy_records_to_table", (table_name,), options, timeout)

    def transaction(self, **options: Any) -> Transaction:
        given: Any = {"isolation": None, "readonly": False, "deferrable": False, **options}
        myself: Any = self
        return Transaction(myself, given["isolation"], given["readonly"], given["deferrable"])

    async def add_listener(self, channel: str, listener: Listener) -> None:
        await self.fetch("select 'listen'")
        assert self._session is not None
        self._gateway.listen(self._session, channel)
        self._listeners.setdefault(channel, []).append(listener)

    def add_termination_listener(self, listener: Callable[[Any], None]) -> None:
        self._when_lost.append(listener)

    def is_in_transaction(self) -> bool:
        return self._open_transaction

    def _get_unique_id(self, prefix: str) -> str:
        return f"sim_{prefix}_{next(self._numbers):x}"

    def get_server_pid(self) -> int:
        assert self._session is not None
        return self._session.pid

    def get_settings(self) -> None:
        """Report nothing: a session has no server process of its own that could."""

    def is_closed(self) -> bool:
        if self._closed and self.lent:
            # As asyncpg: it takes a connection that has ended from its user, and refuses every call.
            raise asyncpg.InterfaceError(
                "cannot call Connection.is_closed(): connection has been released back to the pool"
            )
        return self._closed

    async def close(self, *, timeout: float | None = None) -> None:
        self.terminate()

    def terminate(self) -> None:
        if not self._closed and self._session is not None:
            self._gateway.leave(self._session)
        self.lost(asyncpg.ConnectionDoesNotExistError("connection was closed"))

    def needs_reset(self) -> bool:
        """A cancelled call isn't over yet, or a transaction is open."""
        return not self._closed and (self._leftover is not None or self._open_transaction)

    async def reset(self) -> None:
        """What is left of a cancelled call must be over before somebody else gets the connection:
        a begin that comes late would swallow what the next one thinks is committed."""
        if self._leftover is not None:
            await asyncio.shield(self._leftover)
        self._top_xact = None
        if self._open_transaction:
            await self.execute("ROLLBACK")

    # -- calls

    async def _perform(
        self, method: str, arguments: tuple[Any, ...], options: dict[str, Any],
        timeout: float | None,
    ) -> Any:  # fmt: skip
        limit = self._command_timeout if timeout is None else timeout
        if self._call is not None:
            raise asyncpg.InterfaceError("another operation is in progress")
        if self._leftover is not None:
            async with asyncio.timeout(limit):
                await asyncio.shield(self._leftover)
        if self._closed or self._session is None:
            raise asyncpg.InterfaceError("connection is closed")
        call = Call(method, (with_sim_notify(arguments[0]), *arguments[1:]), options)
        return await self._send(self._session, call, limit)

    async def _send(self, session: Session, call: Call, limit: float | None) -> Any:
        loop = self._gateway.loop
        self._call, self._answer = call, loop.create_future()
        late = loop.call_later(limit, _time_out, self._answer) if limit is not None else None
        self._gateway.request(session, call)
        try:
            return await self._answer
        except (asyncio.CancelledError, TimeoutError):
            if not self._closed:
                self._leftover = loop.create_future()
                self._gateway.cancel(session, call)
            raise
        finally:
            self._call = self._answer = None
            if late is not None:
                late.cancel()

    # -- what the gateway says

    def answered(self, call: Call, result: Any, error: BaseException | None, inside: bool) -> None:
        if self._closed:
            return
        self._open_transaction = inside
        if call is not self._call:
            self._end_leftover()
        elif self._answer is not None and not self._answer.done():
            if error is None:
                self._answer.set_result(result)
            else:
                self._answer.set_exception(error)

    def lost(self, error: Exception) -> None:
        if self._closed:
            return
        self._closed = True
        for listener in self._when_lost:
            self._gateway.loop.call_soon(listener, self, context=self._context)
        self._open_transaction = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
        self._end_leftover()

    def _end_leftover(self) -> None:
        leftover, self._leftover = self._leftover, None
        if leftover is not None and not leftover.done():
            leftover.set_result(None)

    def notified(self, channel: str, payload: str) -> None:
        if not self._closed:
            for listener in self._listeners.get(channel, ()):
                self._gateway.loop.call_soon(
                    listener, self, 0, channel, payload, context=self._context
                )


def _time_out(answer: asyncio.Future[Any]) -> None:
    if not answer.done():
        answer.set_exception(TimeoutError())


class SimPool:
    def __init__(
        self, gateway: Gateway, max_size: int, connect: Callable[[], Awaitable[SimConnection]]
    ) -> None:
        self._gateway = gateway
        self._connect = connect
        self._room = max_size
        self._free: list[SimConnection] = []  # the last used is the next
        self._all: dict[SimConnection, None] = {}
        self._expired: dict[SimConnection, None] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._patience: float | None = None  # of the last who acquired, and so of everybody

    def __await__(self) -> Generator[Any, Any, SimPool]:
        yield from asyncio.sleep(0).__await__()
        return self

    async def acquire(self, *, timeout: float | None = None) -> SimConnection:
        connection = await self._acquire(timeout)
        connection.lent = True
        return connection

    async def _acquire(self, timeout: float | None) -> SimConnection:
        self._patience = timeout
        if self._room > 0 and (connection := self._take_free()) is not None:
            self._room -= 1
            return connection
        async with asyncio.timeout(timeout):
            await self._get_place()
            if (connection := self._take_free()) is not None:
                return connection
            try:
                connection = await self._connect()
            except BaseException:
                self._give_place()
                raise
            self._all[connection] = None
            return connection

    def _take_free(self) -> SimConnection | None:
        while self._free:
            connection = self._free.pop()
            if not connection.is_closed():
                return connection
            self._all.pop(connection, None)
        return None

    async def _get_place(self) -> None:
        if self._room > 0:
            self._room -= 1
            return
        turn = self._gateway.loop.create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give_place()
            raise

    def _give_place(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._room += 1

    async def release(self, connection: SimConnection) -> None:
        if connection.needs_reset():
            # Shielded, as in asyncpg: a caller who is cancelled now must not leave it half done.
            await asyncio.shield(asyncio.ensure_future(self._reset(connection)))
        else:
            self._take_back(connection)

    async def _reset(self, connection: SimConnection) -> None:
        try:
            async with asyncio.timeout(self._patience):
                await connection.reset()
        except BaseException:
            connection.terminate()
            raise
        finally:
            self._take_back(connection)

    def _take_back(self, connection: SimConnection) -> None:
        connection.lent = False
        connection._pool_release_ctr += 1
        connection._top_xact = None
        if connection in self._expired:
            connection.terminate()
        if connection.is_closed():
            self._all.pop(connection, None)
            self._expired.pop(connection, None)
        else:
            self._free.append(connection)
        self._give_place()

    async def expire_connections(self) -> None:
        """Those that are in use now are replaced when they come back."""
        for connection in self._free:
            connection.terminate()
        self._expired.update(self._all)

    async def close(self) -> None:
        self.terminate()

    def terminate(self) -> None:
        for connection in self._all:
            connection.terminate()
        self._all.clear()
        self._free.clear()


class SimDriver:
    """In place of the module asyncpg."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncpg, name)

    async def connect(
        self, dsn: str | None = None, *, timeout: float = 60.0,
        command_timeout: float | None = None, server_settings: dict[str, str] | None = None,
        **_others: Any,
    ) -> SimConnection:  # fmt: skip
        connection = SimConnection(self._gateway, command_timeout)
        return await connection.open(server_settings or {}, timeout)

    def create_pool(
        self, dsn: str | None = None, *, max_size: int, connect: Any = None, **others: Any
    ) -> SimPool:
        of_its_own = ("min_size", "max_inactive_connection_lifetime", "reset")
        arguments = {name: value for name, value in others.items() if name not in of_its_own}
        return SimPool(self._gateway, max_size, partial(connect or self.connect, dsn, **arguments))
