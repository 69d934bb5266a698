"""Hand out jobs to remote workers, and let requests wait while there are none.

Protocol. See `rota.runtime.attempts`, steps 1 to 5. A claim is one statement (`rota.claim_remote`)
under a new token. What it took is held here until it is due, marked as started where that is needed,
and handed out; what can't be handed out is given back. A request that finds nothing and may wait
advertises in the worker's row that it is idle, subscribes to hints, claims again, and then claims with
each hint, or after a pause. The claim itself advertises, and withdraws that when it finds something, so
that what was found is not held up.

Whether the worker may still ask is checked again while it waits, and before jobs are handed out, by the
rules for requests: a worker whose token was revoked meanwhile gets the refusal that its next request
would get, and what was claimed for it is given back.

A client that disconnects while we wait or hold is given nothing. A client that disconnects while we
answer repeats the request under the same id, and gets the jobs under another token. Dying anywhere
leaves claimed rows: the next try of the request gets them; or the worker's next heartbeat, which names
the jobs it knows of, gives them back; or the reaper does. Nothing is kept here between two requests.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import Any, TypeAlias
from uuid import UUID

import msgspec

from rota.config import Settings
from rota.core.lifecycle import PRIME_SUSPECT_CRASHES, runs_alone
from rota.core.resources import from_json
from rota.errors import StoreUnavailable
from rota.lib.ids import new_id, unit
from rota.runtime.attempts import mark, must_mark, to_work
from rota.runtime.lanes import ServedQueues
from rota.runtime.work import Work
from rota.server.remote_workers.messages import ClaimRequest
from rota.server.remote_workers.subscription import Subscription, Subscriptions
from rota.server.remote_workers.workers import decrypted
from rota.store.remote import JobToken, RemoteStore, WorkerState
from rota.store.work import Returned

_POLL_EVERY = 0.25  # seconds between the polls of all waiting requests together, without hints
_POLL_WITHOUT_HINTS = 0.5  # of a request that no hints reach
_CHECK_SECONDS = 0.5  # between two checks whether the worker may still ask
_AFTER_NOTHING = 0.5  # seconds, when what was found could not be handed out
_MOST_BYTES = 4_000_000  # of payloads in one answer
_EPSILON = 0.002  # seconds: what is due so soon is due


class Asker(msgspec.Struct, frozen=True):
    """The worker that claims. `gone` ends when its client has disconnected; `check` raises when it may
    no longer claim."""

    worker: UUID
    gone: Awaitable[None]
    check: Callable[[], Awaitable[None]]


# The jobs to hand out, and those to stop if a cancellation arrived while the request waited.
Handed: TypeAlias = tuple[Sequence[Work], Sequence[JobToken]]
NOTHING: Handed = ((), ())


class Claims:
    def __init__(
        self, subscriptions: Subscriptions, settings: Settings, stopping: asyncio.Event
    ) -> None:
        self._subscriptions = subscriptions
        self._settings = settings
        self._stopping = stopping

    async def claim(
        self, store: RemoteStore, worker: WorkerState, request: ClaimRequest, asker: Asker,
        offered_try: int | None = None,
    ) -> Handed:  # fmt: skip
        """Claim jobs for a worker. `offered_try`: they are only offered, and are marked when the worker
        begins them (`RemoteWorkers.begin`); the number is the worker's own for this try."""
        ends = monotonic() + request.wait
        left = asyncio.ensure_future(asker.gone)
        this_try = await store.next_try() if offered_try is None else offered_try
        claim_once = _Claim(store, request, this_try, left, asker)
        claim_once.marks = offered_try is None
        claim_once.advertises = request.wait > 0
        try:
            if jobs := await claim_once():
                return jobs, ()
            if request.wait <= 0 or left.done():
                return NOTHING
            served = ServedQueues(
                dict.fromkeys(worker.queues), worker.capabilities, from_json(worker.resources),
                worker.labels,
            )  # fmt: skip
            subscription = Subscription(asker.worker, store.namespace, served)
            async with self._subscriptions.open(subscription):
                try:
                    return await self._wait(store, claim_once, subscription, ends)
                finally:
                    await asyncio.shield(_pass_on(store, subscription))
        finally:
            left.cancel()
            if claim_once.advertised:
                await asyncio.shield(_withdraw(store, asker.worker))

    async def _wait(
        self, store: RemoteStore, claim_once: _Claim, subscription: Subscription, ends: float
    ) -> Handed:
        claim_once.withdraws = True
        look_at = monotonic() + self._settings.lease_seconds / 3  # its lease was just renewed
        while not (claim_once.left.done() or self._stopping.is_set()):
            subscription.woken.clear()
            jobs = await claim_once()
            subscription.settle(row["lane"] for row in claim_once.took)
            if jobs or subscription.signalled:
                worker = subscription.worker
                return jobs, await store.cancels(worker) if subscription.signalled else ()
            if monotonic() >= look_at:
                state = await store.find(subscription.worker)
                # Its lease must not expire while it waits for the answer.
                if state is None or state.trusted < self._settings.lease_seconds / 3:
                    break
            left_to_wait = ends - monotonic()
            if left_to_wait <= 0:
                break
            if claim_once.took:
                # All that was found was given back, which was a hint for this request, too.
                await asyncio.sleep(min(_AFTER_NOTHING, left_to_wait))
            else:
                pause = min(self._pause(subscription), left_to_wait)
                await self._rest(subscription, claim_once, pause)
            await self._subscriptions.listen(subscription)
        return NOTHING

    def _pause(self, subscription: Subscription) -> float:
        if not self._subscriptions.works(subscription):
            return _POLL_WITHOUT_HINTS * (0.75 + unit() / 2)
        poll = max(self._settings.poll, self._subscriptions.waiting * _POLL_EVERY)
        return min(poll, self._settings.lease_seconds / 3) * (0.75 + unit() / 2)

    async def _rest(self, subscription: Subscription, claim_once: _Claim, seconds: float) -> None:
        waits = [
            asyncio.ensure_future(event.wait()) for event in (subscription.woken, self._stopping)
        ]
        any_of: list[asyncio.Future[Any]] = [claim_once.left, *waits]
        ends = monotonic() + seconds
        done: set[asyncio.Future[Any]] = set()
        try:
            while not done and (left_to_rest := ends - monotonic()) > 0:
                done, _ = await asyncio.wait(
                    any_of, timeout=min(left_to_rest, _CHECK_SECONDS),
                    return_when=asyncio.FIRST_COMPLETED,
                )  # fmt: skip
                await claim_once.check()
        finally:
            for wait in waits:
                wait.cancel()


class _Claim:
    """One claim, and everything between it and the answer to the request."""

    def __init__(
        self, store: RemoteStore, request: ClaimRequest, this_try: int,
        left: asyncio.Future[None], asker: Asker,
    ) -> None:  # fmt: skip
        self._store = store
        self._worker = asker.worker
        self._id = request.request or str(new_id())
        self._most = request.max
        self._try = this_try
        self.left = left
        self.check = asker.check
        self.marks = True  # what it hands out counts as begun
        self.advertises = False
        self.withdraws = False
        self.advertised = False
        self.took: Sequence[Any] = ()  # rows that the last call claimed, handed out or not

    async def __call__(self) -> list[Work]:
        """Claim jobs and return those that can be handed out now. The rest is given back in any case."""
        self.advertised |= self.advertises
        rows = await self._store.claim(
            self._worker, self._id, self._try, self._most, advertises=self.advertises,
            withdraws=self.withdraws,
        )  # fmt: skip
        if rows:
            self.advertised = False
        self.took = rows
        received = monotonic()
        if not rows:
            return []
        handed: list[Work] = []
        try:
            kept = await self._without_suspects(_within(rows, _MOST_BYTES))
            due = await self._due(kept, received)
            works = [to_work(row[:-1]) for row in due]  # without `now`
            readable = await decrypted(self._store, self._worker, works)
            await self.check()
            handed = await self._started(readable) if self.marks else readable
            if self.left.done():
                handed = []
        except BaseException:
            handed = []
            raise
        finally:
            out = {work.id for work in handed}
            rest = [Returned(row["id"], row["token"]) for row in rows if row["id"] not in out]
            # Rows that moved on meanwhile (skipped, put off) are not found there, which is right.
            await asyncio.shield(self._store.give_back(self._worker, rest))
        return handed

    async def _without_suspects(self, rows: list[Any]) -> list[Any]:
        """Keep one prime suspect at most: a worker is given one at a time."""
        suspects = [row["id"] for row in rows if runs_alone(row["crashes"])]
        if not suspects:
            return rows
        token = rows[0]["token"]
        held = await self._store.count_suspects(self._worker, token, PRIME_SUSPECT_CRASHES)
        refused = set(suspects if held else suspects[1:])
        return [row for row in rows if row["id"] not in refused]

    async def _due(self, rows: list[Any], received: float) -> list[Any]:
        """Hold jobs until they are due: they are released shortly before, and none may start early."""
        early = [row["early"] for row in rows if row["early"] is not None]
        if not early:
            return rows
        # Counted from the receipt of the database's time: never ahead of it.
        database_ahead = rows[0]["now"] - received
        if len(early) == len(rows):
            await asyncio.wait([self.left], timeout=min(early) - database_ahead - monotonic())
        until = monotonic() + database_ahead + _EPSILON
        soon = [row for row in rows if row["early"] is None or row["early"] <= until]
        last = max((row["early"] for row in soon if row["early"] is not None), default=0.0)
        await asyncio.sleep(last - database_ahead - monotonic())
        return soon

    async def _started(self, works: list[Work]) -> list[Work]:
        """Return those that may start, marked where they must be: handed out counts as begun."""
        if self.left.done():
            return []
        marked = [work for work in works if must_mark(work)]
        answers = await mark(self._store.work, self._worker, marked)
        return [work for work in works if not must_mark(work) or answers.get(work.id) == "start"]


async def _withdraw(store: RemoteStore, worker: UUID) -> None:
    with contextlib.suppress(StoreUnavailable):  # hints may be lost
        await store.work.withdraw_idle(worker)


async def _pass_on(store: RemoteStore, subscription: Subscription) -> None:
    """Pass on the hints that only this worker was given."""
    with contextlib.suppress(StoreUnavailable):
        await subscription.pending.pass_on(store.work, subscription.worker, store.namespace)


def _within(rows: Sequence[Any], most: int) -> list[Any]:
    """Return as many of the first as fit into one answer: at least one."""
    kept: list[Any] = []
    size = 0
    for row in rows:
        size += len(row["payload"])
        if kept and size > most:
            break
        kept.append(row)
    return kept
