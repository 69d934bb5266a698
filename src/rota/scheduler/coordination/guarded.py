"""Puts another coordinator behind the database's fence, and PostgreSQL behind the coordinator.

Protocol. The coordinator says who should own a shard, and numbers its grants. Before a grant is used
it is written to `rota.shard` (`enforce_shards`), which gives it our own epoch; the database refuses a
grant that is older than the one whose row still holds. What was refused is tried again with every
look. Rows are written for new grants, and with each renewal; a look that finds nothing new costs the
database nothing.

When the coordinator fails to answer, the same tick asks PostgreSQL instead (`PostgresCoordination`):
rows that are this node's stay its own, and rows that have expired are shared among the schedulers that
are in the same situation. A task in the background asks the coordinator again; when it has answered,
the next tick goes back to it. So a coordinator that is away, stalls or has lost everything costs the
time of one unanswered call, and nothing else.

If we die between the coordinator's grant and the row: the grant expires. Between the row and the
release in the coordinator: the same. Nothing here is trusted by a write: those check the epoch.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar
from uuid import UUID

from rota.lib.ids import unit
from rota.scheduler.coordination import (
    Coordination,
    CoordinatorUnavailable,
    Grant,
    PostgresCoordination,
    View,
)
from rota.store.database import Database

log = logging.getLogger("rota.shards")

_PATIENCE = 2.0  # seconds: for an answer of the coordinator, unless the lease asks for less
_ASK_AGAIN_AFTER = 1.0
_ASK_AGAIN_AT_MOST = 10.0

T = TypeVar("T")


class GuardedCoordination:
    """Coordination by a service that the database doesn't trust.

    Args:
        driver: the service.
        database: where the fence is, and what is asked when the service doesn't answer.
        name: what people call the service: its address without credentials.
    """

    def __init__(self, driver: Coordination, database: Database, name: str) -> None:
        self._driver = driver
        self._database = database
        self._postgres = PostgresCoordination(database)
        self._name = name
        self._accepted: dict[int, tuple[int, int]] = {}  # shard: (the driver's number, our epoch)
        self._of: UUID | None = None  # whose they are
        self._fault: str | None = None  # why the driver didn't answer; None: it did
        self._noted: tuple[UUID, str | None] | None = None
        self._asking_again: asyncio.Task[None] | None = None

    @property
    def fault(self) -> str | None:
        return self._fault

    # -- the four calls

    async def renew(self, node: UUID, ttl: float) -> View:
        view = await self._ask(node, ttl, lambda: self._driver.renew(node, ttl))
        await self._note(node)
        if view is None:
            return await self._postgres.renew(node, ttl)
        granted = {grant.shard: grant.epoch for grant in view.grants_of(node)}
        await self._enforce(node, view.ttl or ttl, granted)
        return self._judged(node, view)

    async def watch(self, node: UUID) -> View:
        view = await self._ask(node, _PATIENCE * 3, lambda: self._driver.watch(node))
        if view is None:
            return await self._postgres.watch(node)
        granted = {grant.shard: grant.epoch for grant in view.grants_of(node)}
        known = self._accepted if node == self._of else {}
        self._accepted = {
            shard: pair for shard, pair in known.items() if granted.get(shard) == pair[0]
        }
        self._of = node
        new = {s: number for s, number in granted.items() if s not in self._accepted}
        if new:
            kept = self._accepted
            await self._enforce(node, view.ttl or _PATIENCE * 3, new)
            self._accepted = {**kept, **self._accepted}
        return self._judged(node, view)

    async def acquire(self, node: UUID, ttl: float, shards: Sequence[int]) -> list[Grant]:
        granted = await self._ask(node, ttl, lambda: self._driver.acquire(node, ttl, shards))
        if granted is None:
            return await self._postgres.acquire(node, ttl, shards)
        if not granted:
            return []
        before = self._accepted if node == self._of else {}
        await self._enforce(node, ttl, {grant.shard: grant.epoch for grant in granted})
        new = self._accepted
        self._accepted = {**before, **new}
        return [Grant(shard, epoch) for shard, (_, epoch) in sorted(new.items())]

    async def release(self, node: UUID, shards: Sequence[int] | None = None) -> None:
        # The row first: a number from below, of a coordinator that was restored, can then be accepted.
        await self._postgres.release(node, shards)
        gone = self._accepted if shards is None else shards
        self._accepted = {s: pair for s, pair in self._accepted.items() if s not in gone}
        await self._ask(node, _PATIENCE * 3, lambda: self._driver.release(node, shards))

    async def close(self) -> None:
        if self._asking_again is not None:
            self._asking_again.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._asking_again
        await self._driver.close()

    # -- the fence

    async def _enforce(self, node: UUID, ttl: float, granted: dict[int, int]) -> None:
        """Write grants to the database; what it accepts is in `_accepted`."""
        if not granted:
            self._accepted, self._of = {}, node
            return
        rows = await self._database.fetch(
            "enforce_shards", node, ttl, list(granted), list(granted.values())
        )
        self._of = node
        self._accepted = {row["shard"]: (granted[row["shard"]], row["epoch"]) for row in rows}

    def _judged(self, node: UUID, view: View) -> View:
        """Return the view with our epochs for this node's shards."""
        owners, pending = dict(view.owners), set()
        for grant in view.grants_of(node):
            if grant.shard in self._accepted:
                owners[grant.shard] = (node, self._accepted[grant.shard][1])
            else:
                pending.add(grant.shard)
        return View(view.members, owners, view.ttl, frozenset(pending))

    # -- the coordinator, and what is done without it

    async def _ask(self, node: UUID, ttl: float, call: Callable[[], Awaitable[T]]) -> T | None:
        """Return the coordinator's answer; None: it has none."""
        if self._fault is not None:
            self._ask_again(node, ttl)
            return None
        try:
            async with asyncio.timeout(min(ttl / 3, _PATIENCE)):
                return await call()
        except TimeoutError:
            self._fault = f"no answer within {min(ttl / 3, _PATIENCE):.1f} s"
        except CoordinatorUnavailable as error:
            self._fault = str(error)
        self._accepted = {}  # meanwhile rows change: all of it is asked of the database again
        log.warning("%s does not answer, PostgreSQL shares the shards: %s", self._name, self._fault)
        self._ask_again(node, ttl)
        return None

    def _ask_again(self, node: UUID, ttl: float) -> None:
        if self._asking_again is None or self._asking_again.done():
            self._asking_again = asyncio.create_task(self._until_it_answers(node, ttl))

    async def _until_it_answers(self, node: UUID, ttl: float) -> None:
        """Ask until there is an answer. The next tick then uses the coordinator again."""
        pause = _ASK_AGAIN_AFTER
        while True:
            await asyncio.sleep(pause * (0.5 + unit()))
            try:
                async with asyncio.timeout(_PATIENCE):
                    await self._driver.watch(node)
            except TimeoutError:
                self._fault = f"no answer within {_PATIENCE:.1f} s"
            except CoordinatorUnavailable as error:
                self._fault = str(error)
            else:
                log.info("%s answers again", self._name)
                self._fault = None
                return
            pause = min(pause * 1.5, _ASK_AGAIN_AT_MOST)

    async def _note(self, node: UUID) -> None:
        """Write into the node's row which coordinator it uses, when that is news."""
        news = (node, self._fault)
        if self._noted != news:
            await self._database.fetch("note_coordinator", node, self._name, self._fault)
            self._noted = news
