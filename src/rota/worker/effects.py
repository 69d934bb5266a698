"""Makes effects happen exactly once: by a handler's own transaction, and by `once` keys.

Protocol of a transaction. The handler's writes and the job's finish are one commit, guarded by the
token: if the job has moved on, the finish finds no row and everything is rolled back. Dying before
the commit leaves nothing, after it there is nothing left to do: the reaper finds the job gone.

Protocol of `once`. The key is written as begun under the job's lease, the effect runs, the key is
written as done with its result. Dying in between leaves a key that is begun and not done: nobody
knows whether the effect happened, so the next attempt is refused unless it says that it may run. The
key is freed only if the effect itself raised: once it has happened, whatever goes wrong later (a value
that can't be kept, a database that is away) leaves it done, or begun.

The database can't tell two calls of one attempt apart, nor such a call from a repeated statement. So the
node remembers which keys an attempt has begun, from before it asks until the end is written. A key whose
end could not be written, or whose effect was cancelled, is unknown to the rest of that attempt as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from time import monotonic
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from rota import generators
from rota.config import Settings
from rota.context import OnceAnswer
from rota.durable.wire import NewCheckpoint
from rota.errors import (
    ConfigError,
    InvalidArguments,
    LeaseLost,
    OnceNotKept,
    OnceUnknown,
    StoreUnavailable,
)
from rota.lib.encryption import mark_unencrypted
from rota.lifecycle import State
from rota.model import Outcome, OutcomeKind
from rota.runtime import members
from rota.runtime.attempts import succeeded
from rota.runtime.heartbeat import Lease
from rota.runtime.work import Work
from rota.store.database import Database
from rota.store.limits import LimitStore
from rota.store.sync_effects import TransactionTerms, result_needed, transaction_ended
from rota.store.work import WorkStore
from rota.worker.finisher import Finisher
from rota.worker.functions import Functions
from rota.worker.permits import Permits

log = logging.getLogger("rota.effects")

_END_PAUSES = (0.2, 0.4, 0.8, 1.6, 3.2)  # seconds between tries to note that an effect happened


class Effects:
    """Serves the calls that handlers make through their contexts: see `runners.base.Desk`."""

    def __init__(
        self, database: Database, settings: Settings, finisher: Finisher, lease: Lease,
        functions: Functions | None = None, state: State | None = None,
    ) -> None:  # fmt: skip
        self.state = state or State()
        self._database = database
        self._store = WorkStore(database)
        self._namespace = settings.namespace
        self._finisher = finisher
        self._lease = lease
        self._functions = functions or Functions(database, lease)
        self.permits = Permits(LimitStore(database), settings.namespace, lease)
        # The keys that were begun and not ended: whether they are still running.
        self._begun: dict[tuple[Work, str], bool] = {}

    # -- exactly_once

    async def transact(self, work: Work, handler: Callable[[Any], Awaitable[Outcome]]) -> Outcome:
        """Run the handler in a transaction that also finishes its job."""
        node, begun = self._lease.node_id, False
        try:
            async with self._database.transaction("transact", lent=True) as connection:
                # Early, to spare the handler's work; the finish below decides.
                check = self._database.queries["check_lease"]
                if not await connection.fetchval(check, node, work.id, work.token):
                    raise LeaseLost(f"job {work.id} is no longer this node's")
                if not self._lease.trusted:
                    # That answer may have been long on its way: the handler isn't begun any more.
                    return Outcome(OutcomeKind.RETURNED)
                begun = True
                outcome = await handler(connection)
                if work.run is not None and outcome.failure is not None:
                    raise result_needed(outcome.failure)
                if outcome.kind is OutcomeKind.SUCCEEDED:
                    await self._finish(connection, node, work, outcome)
        except StoreUnavailable:
            if begun:
                raise
            # Its handler did not begin: a database that is away uses up no attempt.
            return Outcome(OutcomeKind.RETURNED)
        return outcome

    async def _finish(self, connection: Any, node: UUID, work: Work, outcome: Outcome) -> None:
        if not connection.is_closed() and not connection.is_in_transaction():
            raise transaction_ended(work.id)
        now = monotonic()
        done = succeeded(work, outcome, now)
        if await self._store.finish_succeeded(node, [done], now, connection) != 1:
            raise LeaseLost(f"job {work.id} moved on while it ran; its writes are rolled back")

    # -- once, and progress

    def report_progress(self, work: Work, progress: bytes) -> None:
        plain = mark_unencrypted(progress)
        text = work.encryptor.json("progress", progress) if work.encryptor else plain.decode()
        self._finisher.progress[work.id] = (work.token, text)

    async def begin(self, work: Work, key: str, rerun_unknown: bool) -> OnceAnswer:
        """Begin an effect, unless it has happened. Raises OnceUnknown if it may have."""
        place = (work, key)
        if not 1 <= len(key) <= 255 or "\0" in key:
            raise InvalidArguments(
                "the key of once() must be a text of 1 to 255 characters, none of them NUL"
            )
        before = self._begun.get(place)
        if before is True:
            raise InvalidArguments(f"once({key!r}) is already running in this attempt")
        if before is False and not rerun_unknown:
            raise _unknown(key)
        self._begun[place] = True
        answer: OnceAnswer | None = None
        try:
            answer = await self._begin(work, key, rerun_unknown)
        finally:
            if answer is None and before is not None:
                self._begun[place] = before
            elif answer is None or answer.done:
                self._begun.pop(place, None)
        return answer

    async def _begin(self, work: Work, key: str, rerun_unknown: bool) -> OnceAnswer:
        rows = await self._database.fetch(
            "begin_effect", self._lease.node_id, work.id, work.token, self._namespace, key,
            rerun_unknown,
        )  # fmt: skip
        held, ours, done_at, result = rows[0]
        if not held:
            raise LeaseLost(f"job {work.id} is no longer this node's; once({key!r}) was not run")
        if done_at is not None and result is None:
            return OnceAnswer(True, kept=False)
        if done_at is not None:
            return OnceAnswer(True, msgspec.Raw(self._database.encryption.once(key, result)))
        if not ours:
            raise _unknown(key)
        return OnceAnswer(False)

    def attempt_ended(self, work: Work, *_: object) -> None:
        """Forget the keys that it left begun: the next attempt finds them in the database."""
        if self._begun:
            self._begun = {at: runs for at, runs in self._begun.items() if at[0] is not work}

    async def end(self, work: Work, key: str, result: bytes | None) -> None:
        """Record that the effect has happened. Without a result: it can't be kept."""
        text = None if result is None else mark_unencrypted(result).decode()
        if result is not None and work.encryptor is not None:
            text = self._database.encryption.encrypted_once(key, result)
        try:
            await self._end(work, key, text)
        except asyncpg.PostgresError as error:  # of its own, not of the database's state
            if text is None:
                raise
            await self._end(work, key, None)
            raise OnceNotKept(key, str(error)) from error

    async def _end(self, work: Work, key: str, text: str | None) -> None:
        """Write the end, retrying for a while: a key that stays begun needs a person to settle it."""
        ended = ("end_effect", self._namespace, key, work.id, work.token, text)
        with self._ending(work, key):
            for pause in _END_PAUSES:
                try:
                    await self._database.fetch(*ended)
                    return
                except StoreUnavailable as error:
                    if not self._lease.trusted:
                        raise
                    log.warning("can't record yet that once(%r) has happened: %s", key, error)
                await asyncio.sleep(pause)
            await self._database.fetch(*ended)

    async def drop(self, work: Work, key: str) -> None:
        """Free a key whose effect has raised."""
        with self._ending(work, key):
            await self._database.fetch("drop_effect", self._namespace, key, work.id, work.token)

    @contextlib.contextmanager
    def _ending(self, work: Work, key: str) -> Iterator[None]:
        """Write the end of a key inside. If that fails, it is unknown to the rest of the attempt."""
        try:
            yield
        except BaseException:
            self._begun[work, key] = False
            raise
        self._begun.pop((work, key), None)

    async def _terms(self, work: Work) -> TransactionTerms:
        """Return what a child needs to connect, with the password of this moment."""
        database = self._database
        if database.settings.connect is not None:
            raise ConfigError(
                "connect= makes asyncpg's connections, which plain functions can't use: make this "
                "exactly_once task a coroutine"
            )
        return TransactionTerms(
            database.url, database.schema, self._lease.node_id, database.session,
            database.behind_pooler, work.encryptor, work.run is not None,
            await database.password.read(),
        )  # fmt: skip

    def record(self, work: Work, new: Sequence[NewCheckpoint]) -> asyncio.Future[bool]:
        return self._functions.record(work, new)

    async def answer(self, work: Work, name: str, body: bytes) -> bytes:
        """Answer a call of a handler."""
        match name:
            case "transaction":
                return msgspec.json.encode(await self._terms(work))
            case "once_begin":
                key, rerun = msgspec.json.decode(body, type=tuple[str, bool])
                return msgspec.json.encode(await self.begin(work, key, rerun))
            case "once_end":  # [key, result], or [key] if there is no result that can be kept
                text, *results = msgspec.json.decode(body, type=list[msgspec.Raw])
                key = msgspec.json.decode(text, type=str)
                await self.end(work, key, bytes(results[0]) if results else None)
            case "once_drop":
                await self.drop(work, msgspec.json.decode(body, type=str))
            case "once_leave":  # cancelled inside: nobody knows whether it happened
                self._begun[work, msgspec.json.decode(body, type=str)] = False
            case "limit_take":
                return await self.permits.take(work, body)
            case "limit_leave":
                await self.permits.leave(work, body)
            case members.RECORD:
                return await self._functions.chunks.record(work, body)
            case generators.ITEMS:
                return await self._functions.generated.add(work, body)
            case _:
                return await self._functions.answer(work, name, body)
        return b"null"


def _unknown(key: str) -> OnceUnknown:
    return OnceUnknown(
        f"once({key!r}) was begun before and never ended: it may or may not have happened. "
        'Find out, then run it with on_unknown="run", or discard the job'
    )
