"""Hears hints: that a lane has new work, that a node has a signal. They may be lost or doubled.

Protocol. One connection LISTENs on the namespace's channel. After each (re)connect it sends itself an
echo: behind a pooler LISTEN succeeds and nothing ever arrives, and then workers must look by
themselves, more often. A lost line is made anew by the ticker; meanwhile everything still works, later.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable
from typing import Any

from rota.errors import StoreUnavailable
from rota.store.database import Connection, Database, translated_errors

log = logging.getLogger("rota.listener")

_ECHO_SECONDS = 3.0
_CHECK_EVERY = 5.0


def channel_of(schema: str, namespace: str) -> str:
    """The same name as rota.hint() uses."""
    digest = hashlib.md5(f"{schema}.{namespace}".encode(), usedforsecurity=False).hexdigest()
    return f"rota_{digest}"


class Listener:
    name = "listener"

    def __init__(
        self, database: Database, namespace: str, hear: Callable[[str], None],
        working: Callable[[bool], None],
    ) -> None:  # fmt: skip
        self._database = database
        self._channel = channel_of(database.schema, namespace)
        self._hear = hear
        self._working = working
        self._connection: Connection | None = None
        self._echoed = asyncio.Event()

    async def tick(self) -> float:
        if self._database.behind_pooler:
            self._working(False)
            return 3600.0
        if self._connection is None or self._connection.is_closed():
            self._working(False)
            await self._connect()
        else:
            # A line that died without a word looks alive until it is used.
            with translated_errors(self._database.url):
                try:
                    await self._connection.execute("select 1", timeout=_CHECK_EVERY)
                except BaseException:
                    self._connection.terminate()
                    raise
        return _CHECK_EVERY

    async def _connect(self) -> None:
        connection = await self._database.dedicated()
        try:
            with translated_errors(self._database.url):
                self._echoed.clear()
                await connection.add_listener(self._channel, self._notified)
                await connection.execute("select pg_notify($1, 'echo')", self._channel)
                async with asyncio.timeout(_ECHO_SECONDS):
                    await self._echoed.wait()
        except StoreUnavailable:
            connection.terminate()
            raise
        self._connection = connection
        self._working(True)

    def _notified(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        if payload == "echo":
            self._echoed.set()
        else:
            self._hear(payload)

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_closed():
            connection.terminate()
