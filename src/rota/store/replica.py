"""A read replica: how far behind it is, and reads that go to the primary when it can't answer.

Protocol. Twice a second the primary is asked for the end of its log, and the replica for how much of it
was replayed. What the primary had at a moment and the replica has now: so the replica shows at least
everything that was committed before that moment, `as_of`, and its age is the time since. That is exact
without a row that is written for it, on an idle database as well, and it doesn't depend on clocks of
machines. A replica of another cluster is refused: its log would be compared with ours.

A replica that doesn't answer, or is more than `read_max_lag` behind, isn't used; what it fails to answer
in the middle of a request is asked of the primary. It is tried again with every look. If the primary is
away, the age grows, and reads go on until it is too high.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import asyncpg

from rota.config import Settings
from rota.errors import ConfigError, RotaError, StoreUnavailable
from rota.store.database import Connection, Database
from rota.store.row_security import RowSecurity, TenantDatabase

log = logging.getLogger("rota.replica")

LOOK_EVERY = 0.5
_MOST_MARKS = 120
# What isn't found there may be younger than the replica.
_ASKED_AGAIN = frozenset({"get_jobs"})


class ReadReplica:
    """The replica of `read_url`, beside the primary."""

    def __init__(self, primary: Database, settings: Settings) -> None:
        assert settings.read_url is not None
        self._primary = primary
        self._most = settings.read_max_lag
        self.database = Database(settings.read_url, _settings_of(settings), reads=True)
        self._open = False
        self._marks: deque[tuple[float, int]] = deque(maxlen=_MOST_MARKS)
        self._as_of: float | None = None
        self._told = ""

    @property
    def age(self) -> float | None:
        """The seconds that its data may be old; None while it can't be used at all."""
        return None if self._as_of is None else max(0.0, monotonic() - self._as_of)

    def serves(self, changed_at: float | None) -> bool:
        """Return whether it is fresh enough, and has what was changed at that (monotonic) moment."""
        if self._as_of is None or monotonic() - self._as_of > self._most:
            return False
        return changed_at is None or self._as_of >= changed_at

    async def tick(self) -> float:
        """Look how far behind it is. Returns the seconds until the next look."""
        try:
            await self._mark()
            if not self._open:
                await self._begin()
            replayed = await self.database.fetchval("replayed_log")
        except (RotaError, OSError, asyncpg.PostgresError) as error:
            self.leave(str(error))
            return 4 * LOOK_EVERY
        while self._marks and self._marks[0][1] <= replayed:
            self._as_of = self._marks.popleft()[0]
        if self._as_of is not None and self._told:
            log.info("the read replica is used again")
            self._told = ""
        return LOOK_EVERY

    async def _mark(self) -> None:
        """Note where the primary's log ends now. A primary that is away is no reason to stop."""
        began = monotonic()
        try:
            self._marks.append((began, await self._primary.fetchval("end_of_log")))
        except StoreUnavailable:
            log.debug("the primary doesn't say where its log ends")

    async def _begin(self) -> None:
        await self.database.open()
        ours, theirs = await _cluster_of(self._primary), await _cluster_of(self.database)
        if ours is not None and theirs is not None and ours != theirs:
            await self.database.close()
            raise ConfigError(
                "read_url leads to another database cluster, not to a replica of this one"
            )
        self._open = True

    def leave(self, reason: str) -> None:
        """Stop using it until the next look that succeeds."""
        self._as_of = None
        if not self._told:
            log.warning("the read replica isn't used: %s. Reads go to the primary", reason)
        self._told = reason

    async def close(self) -> None:
        self._open = False
        await self.database.close()


def _settings_of(settings: Settings) -> Settings:
    """Return the settings of the replica: a password in its own URL comes first."""
    own = urlsplit(settings.read_url or "").password is not None
    if not own:
        return settings
    return settings.replace(database_password=None, database_password_file=None)


async def _cluster_of(database: Database) -> int | None:
    """Return what a primary and its replicas share; None where the role may not read it."""
    try:
        found: int = await database.fetchval("cluster_id")
    except StoreUnavailable as error:
        if isinstance(error.__cause__, asyncpg.InsufficientPrivilegeError):
            return None
        raise
    return found


class ReadingDatabase(TenantDatabase):
    """The replica as one tenant sees it. What it can't answer, the primary does."""

    def __init__(
        self, replica: ReadReplica, security: RowSecurity, namespace: str, primary: Database
    ) -> None:
        super().__init__(security, namespace)
        self.behind_pooler = replica.database.behind_pooler
        self._replica = replica
        self._fallback = primary

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        async with contextlib.AsyncExitStack() as stack:
            try:
                connection = await stack.enter_async_context(super().connection())
            except StoreUnavailable as error:
                self._replica.leave(str(error))
                connection = await stack.enter_async_context(self._fallback.connection())
            yield connection

    @contextlib.asynccontextmanager
    async def _in_transaction(self, lent: bool = False) -> AsyncIterator[Connection]:
        """Begin it on the primary if the replica turns out to be gone with its first statement."""
        async with contextlib.AsyncExitStack() as stack:
            try:
                connection = await stack.enter_async_context(super()._in_transaction(lent))
            except StoreUnavailable as error:
                self._replica.leave(str(error))
                connection = await stack.enter_async_context(self._fallback._in_transaction(lent))
            yield connection

    async def fetch(self, name: str, *args: Any, on: Connection = None) -> list[Any]:
        if on is not None:
            return await super().fetch(name, *args, on=on)
        parent: Callable[..., Awaitable[list[Any]]] = super().fetch
        try:
            rows = await parent(name, *args)
        except StoreUnavailable as error:
            if isinstance(error.__cause__, asyncpg.QueryCanceledError):
                raise  # it takes too long, and would on the primary
            self._replica.leave(str(error))
            return await self._fallback.fetch(name, *args)
        if not rows and name in _ASKED_AGAIN:
            return await self._fallback.fetch(name, *args)
        return rows
