"""Serves ctx.limit(): places that a handler asks for while it runs.

Protocol. An ask is a row that carries the job's token. It is granted under the lock of its limit, first
come, first served, and counts while the job runs under that token: whatever dies, nobody has to give it
back (docs/architecture.md, "Permits"). A handler asks again until it is granted, each time for at most a
second: so a stop reaches it, its heartbeats go on, and the time that it waits counts for its timeout. A
permit that is given back wakes the node of who is next; if that is lost, the next ask finds it.
"""

from __future__ import annotations

import asyncio
from time import monotonic

import msgspec

from rota.context import PermitAnswer, PermitAsk
from rota.errors import LeaseLost
from rota.runtime.heartbeat import Lease
from rota.runtime.work import Work
from rota.store.limits import LimitStore

_STEP = 1.0  # seconds that one ask waits


class Permits:
    def __init__(self, store: LimitStore, namespace: str, lease: Lease) -> None:
        self._store = store
        self._namespace = namespace
        self._lease = lease
        self._waiting: dict[str, asyncio.Event] = {}

    def wake(self, name: str) -> None:
        """Ask again: somebody has given a permit back."""
        if (event := self._waiting.pop(name, None)) is not None:
            event.set()

    async def take(self, work: Work, body: bytes) -> bytes:
        ask = msgspec.json.decode(body, type=PermitAsk)
        until = monotonic() + _STEP
        while True:
            event = self._waiting.setdefault(ask.name, asyncio.Event())
            granted, wait, lost = await self._store.take_permit(
                self._lease.node_id, work.id, work.token, self._namespace, ask
            )
            if lost:
                raise LeaseLost(f"job {work.id} is no longer this node's; limit {ask.name!r}")
            left = until - monotonic()
            if granted or left <= 0:
                return msgspec.json.encode(PermitAnswer(granted))
            try:
                async with asyncio.timeout(min(wait, left)):
                    await event.wait()
            except TimeoutError:
                pass

    async def leave(self, work: Work, body: bytes) -> None:
        ask = msgspec.json.decode(body, type=PermitAsk)
        await self._store.leave_permit(work.id, work.token, self._namespace, ask)
        self.wake(ask.name)
