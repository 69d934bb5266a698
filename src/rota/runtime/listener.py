"""Receives hints: a lane has new work, a node has a signal. They may be lost or doubled.

Protocol. One connection LISTENs on two channels: the namespace's, for everybody, and the node's own.
After each (re)connect it sends itself an echo: behind a pooler LISTEN succeeds and nothing ever
arrives, and then workers must poll more often. It holds an advisory lock in the node's name for as long
as it is connected, so that a hint isn't given to a node whose process or connection is gone
(`is_listening`). The heartbeat's answer says when the database doesn't see it any more; the check made
here is for the case that no heartbeat gets through either. After a lost connection the ticker connects
again; meanwhile everything works, with more delay.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable
from typing import Any
from uuid import UUID

from rota.lib.ids import unit
from rota.runtime.heartbeat import Lease
from rota.runtime.ticker import Service
from rota.store.database import Connection, Database
from rota.store.driver_errors import translated_errors

log = logging.getLogger("rota.listener")

_ECHO_SECONDS = 3.0
_CHECK_SECONDS = 5.0
_CHECK_EVERY = 60.0


def channel_of(schema: str, namespace: str, node: UUID | None = None) -> str:
    """Return the name of a channel, as rota.channel() does in SQL."""
    whole = f"{schema}.{namespace}" if node is None else f"{schema}.{namespace}.{node}"
    return f"rota_{hashlib.md5(whole.encode(), usedforsecurity=False).hexdigest()}"


class Listener(Service):
    name = "listener"

    def __init__(
        self, database: Database, namespace: str, lease: Lease,
        receive: Callable[[str, bool], None], working: Callable[[bool], None],
    ) -> None:  # fmt: skip
        self._database = database
        self._namespace = namespace
        self._lease = lease
        self._receive = receive  # the payload, and whether it was sent to this node alone
        self._working = working
        self._connection: Connection | None = None
        self._listening_as: UUID | None = None
        self._locked = False
        self._echoed = asyncio.Event()

    async def tick(self) -> float:
        if self._database.behind_pooler:
            self._working(False)
            return 3600.0
        if self._connection is not None and self._listening_as != self._lease.node_id:
            await self.close()  # declared dead: the node has another id now
        if self._connection is None or self._connection.is_closed():
            self._working(False)
            await self._connect()
        else:
            await self._check(self._connection)
        return _CHECK_EVERY * (0.75 + unit() / 2)

    async def _check(self, connection: Connection) -> None:
        """Use the connection: one that broke silently looks alive until then."""
        with translated_errors():
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
        node = self._lease.node_id
        mine = channel_of(self._database.schema, self._namespace, node)
        try:
            with translated_errors():
                self._echoed.clear()
                everybody = channel_of(self._database.schema, self._namespace)
                await connection.add_listener(everybody, self._notified_with_all)
                await connection.add_listener(mine, self._notified_alone)
                self._listening_as = node
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
        [row] = await self._database.fetch_on(connection, "lock_listener", self._listening_as)
        self._locked = row[0]

    def _notified_with_all(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        self._receive(payload, False)

    def _notified_alone(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        if payload == "echo":
            self._echoed.set()
        else:
            self._receive(payload, True)

    def _lost(self, connection: Any) -> None:
        if connection is self._connection:
            self._working(False)
            self.wake()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_closed():
            connection.terminate()
