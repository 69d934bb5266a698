"""Hears hints: that a lane has new work, that a node has a signal. They may be lost or doubled.

Protocol. One connection LISTENs on two channels: the namespace's, for everybody, and the node's own.
After each (re)connect it sends itself an echo: behind a pooler LISTEN succeeds and nothing ever arrives,
and then workers must look by themselves, more often. It holds an advisory lock in the node's name for as
long as it is there, so that a hint isn't given to a node whose process or line is gone (`rota.hears`).
The heartbeat's answer tells when the database has lost sight of it; the check made here is for the case
that no heartbeat gets through either. A lost line is made anew by the ticker; meanwhile everything still
works, later.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable
from typing import Any
from uuid import UUID

from rota.lib.ids import unit
from rota.store.database import Connection, Database, translated_errors

log = logging.getLogger("rota.listener")

_ECHO_SECONDS = 3.0
_CHECK_SECONDS = 5.0
_CHECK_EVERY = 60.0


def channel_of(schema: str, namespace: str, node: UUID | None = None) -> str:
    """The same names as rota.channel() makes."""
    whole = f"{schema}.{namespace}" if node is None else f"{schema}.{namespace}.{node}"
    return f"rota_{hashlib.md5(whole.encode(), usedforsecurity=False).hexdigest()}"


class Listener:
    name = "listener"

    def __init__(
        self, database: Database, namespace: str, node: Callable[[], UUID],
        hear: Callable[[str, bool], None], working: Callable[[bool], None],
    ) -> None:  # fmt: skip
        self._database = database
        self._namespace = namespace
        self._node = node
        self._hear = hear  # what was said, and whether to us alone
        self._working = working
        self._connection: Connection | None = None
        self._heard_as: UUID | None = None
        self._locked = False
        self._echoed = asyncio.Event()
        self.wake: Callable[[], None] = lambda: None

    async def tick(self) -> float:
        if self._database.behind_pooler:
            self._working(False)
            return 3600.0
        if self._connection is not None and self._heard_as != self._node():
            await self.close()  # declared dead: we have another name now
        if self._connection is None or self._connection.is_closed():
            self._working(False)
            await self._connect()
        else:
            await self._check(self._connection)
        return _CHECK_EVERY * (0.75 + unit() / 2)

    async def _check(self, connection: Connection) -> None:
        """A line that died without a word looks alive until it is used."""
        with translated_errors(self._database.url):
            try:
                async with asyncio.timeout(_CHECK_SECONDS):
                    if self._locked:
                        await connection.execute("select 1")
                    else:
                        await self._lock(connection)
            except BaseException:
                connection.terminate()
                raise

    async def _connect(self) -> None:
        connection = await self._database.dedicated()
        node = self._node()
        mine = channel_of(self._database.schema, self._namespace, node)
        try:
            with translated_errors(self._database.url):
                self._echoed.clear()
                everybody = channel_of(self._database.schema, self._namespace)
                await connection.add_listener(everybody, self._notified_with_all)
                await connection.add_listener(mine, self._notified_alone)
                self._heard_as = node
                await self._lock(connection)
                await self._database.fetch_on(connection, "echo", mine)
                async with asyncio.timeout(_ECHO_SECONDS):
                    await self._echoed.wait()
        except BaseException:
            connection.terminate()
            raise
        self._connection = connection
        connection.add_termination_listener(self._lost)
        self._working(True)

    async def _lock(self, connection: Connection) -> None:
        # Not waited for: a connection of ours that the server hasn't missed yet may still hold it.
        [row] = await self._database.fetch_on(connection, "lock_ear", self._heard_as)
        self._locked = row[0]

    def _notified_with_all(self, _line: Any, _pid: int, _channel: str, payload: str) -> None:
        self._hear(payload, False)

    def _notified_alone(self, _line: Any, _pid: int, _channel: str, payload: str) -> None:
        if payload == "echo":
            self._echoed.set()
        else:
            self._hear(payload, True)

    def _lost(self, connection: Any) -> None:
        if connection is self._connection:
            self._working(False)
            self.wake()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_closed():
            connection.terminate()
