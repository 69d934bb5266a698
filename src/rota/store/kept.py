"""The connections of a pool that were used last, kept at hand.

To take a connection from asyncpg's pool and to give it back costs a task, two timers and three
turns of the event loop, as much as the statement itself costs us. So a few connections are not
given back after they were used: the next user takes one without waiting for anything. For the pool
they stay in use.

Protocol. Only what a block left without an error is kept, while it is open, and only while nobody
waits for the pool: whoever waits there gets the next one that is given back. Anything else goes
back to the pool, which cancels what is under way, or closes what is broken or too old. So do
connections that nobody has taken for a while, which the pool then closes in its own time.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

import asyncpg

Connection: TypeAlias = Any

_MOST = 4
_IDLE_SECONDS = 60.0


class Kept:
    def __init__(self, pool: asyncpg.Pool[Any]) -> None:
        self._pool = pool
        self._idle: list[
            tuple[float, Connection]
        ] = []  # (since when, connection), the last used at the end
        self.generation = 0  # rises when all that was made so far is to go back to the pool
        self._waiting = 0  # tasks that wait for a connection of the pool
        self._timer: asyncio.TimerHandle | None = None
        self._releasing: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    async def take(self, patience: float | None) -> Connection:
        while self._idle:
            connection = self._idle.pop()[1]
            if not is_closed(connection):
                return connection
            await self._pool.release(connection)
        self._waiting += 1
        try:
            return await self._pool.acquire(timeout=patience)
        finally:
            self._waiting -= 1

    async def give_back(self, connection: Connection, *, clean: bool, generation: int) -> None:
        """Keep it, if its user left it without an error and nobody waits; else return it to the pool.

        `generation`: that of the moment when it was taken.
        """
        unfit = (
            not clean or generation != self.generation
            or is_closed(connection) or connection.is_in_transaction()
        )  # fmt: skip
        if unfit or self._waiting or len(self._idle) >= _MOST:
            await self._pool.release(connection)
            return
        self._idle.append((self._loop.time(), connection))
        if self._timer is None:
            self._timer = self._loop.call_later(_IDLE_SECONDS, self._let_go)

    def _let_go(self) -> None:
        """Return to the pool what nobody has taken for a while."""
        self._timer = None
        since = self._loop.time() - _IDLE_SECONDS
        old = [connection for moment, connection in self._idle if moment <= since]
        self._idle = [(moment, connection) for moment, connection in self._idle if moment > since]
        for connection in old:
            task = self._loop.create_task(self._pool.release(connection))
            self._releasing.add(task)
            task.add_done_callback(self._releasing.discard)
        if self._idle:
            self._timer = self._loop.call_later(_IDLE_SECONDS, self._let_go)

    async def give_back_all(self) -> None:
        """Return all to the pool: it is to be closed, or its connections are to be made anew.

        Those that are in use follow when their users leave them.
        """
        self.generation += 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._idle:
            await self._pool.release(self._idle.pop()[1])


def is_closed(connection: Connection) -> bool:
    """Return whether a connection of the pool has ended. When it learns of that, asyncpg takes the
    connection from its user, and refuses every call, this one too."""
    try:
        return bool(connection.is_closed())
    except asyncpg.InterfaceError:
        return True
